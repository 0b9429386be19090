"""What vLLM and SGLang really sent, byte by byte (tests/clients/transcripts), read by our client.

Three tokens of `checkpoints/cpu_demo` for the prompts [11, 12, 13, 14] and [136, 137]; the first token of the second is
part of a character and has no text. Recorded with curl: `stream`, `ignore_eos`, `stream_options.include_usage`.
"""

from pathlib import Path

import pytest

from engine.core.record import Status
from harness.loadgen.reply import Reply, stated_error
from harness.loadgen.sse import SSEEvent, SSEParser

TRANSCRIPTS = Path(__file__).with_name("transcripts")
SERVERS = ("vllm-0.32.0", "sglang-0.5.23")


def events_of(name: str, read_bytes: int = 1 << 20) -> list[SSEEvent]:
    """The stream's events, fed to the parser in reads of so many bytes."""
    parser, data = SSEParser(), (TRANSCRIPTS / f"{name}.sse").read_bytes()
    events = [event for at in range(0, len(data), read_bytes) for event in parser.feed(data[at : at + read_bytes])]
    return events + parser.close()


def played(name: str, max_tokens: int) -> Reply:
    """The reply when event number i is read at 10 * (i + 1) ns."""
    reply = Reply(max_tokens, ignore_eos=True)
    for index, event in enumerate(events_of(name)):
        reply.feed(event, 10 * (index + 1))
    reply.close()
    return reply


@pytest.mark.parametrize("server", SERVERS)
def test_three_tokens(server: str):
    reply = played(server, 3)
    assert reply.outcome() == (Status.OK, "")
    assert (reply.first_token_at_ns, reply.last_token_at_ns, reply.tbt_max_ns) == (10, 30, 10)
    assert (reply.output_tokens, reply.output_estimated, reply.usage.prompt_tokens) == (3, False, 4)
    assert (reply.finish_reason, reply.model, reply.done) == ("length", "cpu_demo", True)


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("read_bytes", [1, 7, 64])
def test_reads_may_end_anywhere(server: str, read_bytes: int):
    name = f"{server}-token_ids"
    assert events_of(name, read_bytes) == events_of(name)
    assert len(events_of(name)) == 5


@pytest.mark.parametrize("server", SERVERS)
def test_a_first_token_without_text_counts_when_its_id_was_asked_for(server: str):
    reply = played(f"{server}-token_ids", 3)
    assert (reply.first_token_at_ns, reply.last_token_at_ns, reply.counted_tokens) == (10, 30, 3)


@pytest.mark.parametrize("server", SERVERS)
def test_one_token_without_text_is_timed_by_its_chunk(server: str):
    reply = played(f"{server}-one_token", 1)
    assert (reply.first_token_at_ns, reply.outcome()) == (10, (Status.OK, ""))


def test_vllm_sends_a_chunk_per_token_so_an_empty_first_one_is_the_first_token():
    reply = played("vllm-0.32.0-part_of_a_character", 3)
    assert (reply.first_token_at_ns, reply.last_token_at_ns, reply.tbt_max_ns) == (10, 30, 10)
    assert reply.outcome() == (Status.OK, "")


def test_sglang_may_join_tokens_and_then_the_first_one_with_text_is_the_first():
    """Three tokens came as "" and "...": nothing says that the empty chunk was one, so it is not taken for one."""
    reply = played("sglang-0.5.23-part_of_a_character", 3)
    assert (reply.first_token_at_ns, reply.output_tokens, reply.outcome()[0]) == (20, 3, Status.OK)


@pytest.mark.parametrize(
    ("server", "words"),
    [("vllm-0.32.0", "max_tokens=300000 cannot be greater"), ("sglang-0.5.23", "exceeds the model's maximum context")],
)
def test_a_refusal_gives_its_reason(server: str, words: str):
    refused = stated_error((TRANSCRIPTS / f"{server}-refused.json").read_bytes(), 400)
    assert refused.status is Status.FAILED
    assert words in refused.reason
