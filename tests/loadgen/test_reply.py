"""What a stream's events amount to, without a network."""

import json

import pytest

from engine.core.record import Status
from harness.loadgen.reply import Reply, ReplyError, stated_error
from harness.loadgen.sse import SSEEvent
from tests.fakes.golden_script import delta, error, token, usage


def reply_of(*timed: tuple[int, object], max_tokens: int = 2, ignore_eos: bool = True, done: bool = True) -> Reply:
    reply = Reply(max_tokens, ignore_eos)
    for at_ns, payload in timed:
        reply.feed(SSEEvent(json.dumps(payload).encode()), at_ns)
    if done:
        reply.feed(SSEEvent(b"[DONE]"), 10_000)
    reply.close()
    return reply


def test_tokens_gaps_and_usage():
    reply = reply_of(
        (10, token()), (30, token()), (35, token(finish="length")), (90, usage(7, 3, cached=4)), max_tokens=3
    )
    assert (reply.first_token_at_ns, reply.last_token_at_ns, reply.tbt_max_ns) == (10, 35, 20)
    assert (reply.output_tokens, reply.output_estimated) == (3, False)
    assert (reply.usage.prompt_tokens, reply.usage.cached_tokens) == (7, 4)
    assert reply.outcome() == (Status.OK, "")


def test_events_of_one_read_are_no_gap():
    assert reply_of((10, token()), (10, token())).tbt_max_ns is None


@pytest.mark.parametrize("channel", ["content", "reasoning_content", "reasoning", "refusal"])
def test_c11_the_first_token_of_any_channel_counts(channel: str):
    reply = reply_of((5, delta(role="assistant", content="")), (9, delta(**{channel: "hm"})), (20, delta(content="x")))
    assert reply.first_token_at_ns == 9


def test_a_tool_call_is_a_token():
    assert reply_of((9, delta(tool_calls=[{"index": 0}]))).first_token_at_ns == 9


def test_a_token_without_text_is_known_by_its_id():
    reply = reply_of((9, token("", token_ids=[17])), (20, token("", finish="length", token_ids=[])), max_tokens=1)
    assert (reply.first_token_at_ns, reply.last_token_at_ns, reply.output_tokens) == (9, 9, 1)


def test_a_token_without_text_or_id_is_timed_by_the_chunk_that_ends_the_choice():
    reply = reply_of((9, token("", finish="length")), (20, usage(7, 1)), max_tokens=1)
    assert (reply.first_token_at_ns, reply.outcome()) == (9, (Status.OK, ""))


def test_as_many_tokens_as_chunks_of_text_makes_an_empty_one_a_token():
    chunks = ((9, token("")), (30, token()), (35, token(finish="length")), (90, usage(7, 3)))
    reply = reply_of(*chunks, max_tokens=3)
    assert (reply.first_token_at_ns, reply.last_token_at_ns, reply.tbt_max_ns) == (9, 35, 21)
    fewer = reply_of(*chunks[:3], (90, usage(7, 2)))
    assert (fewer.first_token_at_ns, fewer.tbt_max_ns) == (30, 5)


def test_c02_no_token_is_a_failure():
    status, reason = reply_of((9, token("", finish="stop")), (20, usage(7, 0))).outcome()
    assert status is Status.FAILED
    assert "no token" in reason


def test_c13_without_usage_tokens_are_counted_and_flagged():
    reply = reply_of((9, token()), (10, token(finish="length")))
    assert (reply.output_tokens, reply.output_estimated, reply.outcome()[0]) == (2, True, Status.OK)


@pytest.mark.parametrize(
    ("ignore_eos", "finish", "expected"),
    [
        (True, "stop", Status.TRUNCATED),
        (False, "stop", Status.OK),
        (True, None, Status.TRUNCATED),
        (False, None, Status.TRUNCATED),
        (False, "length", Status.TRUNCATED),
        (True, "abort", Status.FAILED),
    ],
)
def test_fewer_tokens_than_asked(ignore_eos: bool, finish: str | None, expected: Status):
    reply = reply_of((9, token(finish=finish)), (20, usage(7, 1)), ignore_eos=ignore_eos)
    assert reply.outcome()[0] is expected


def test_a_break_after_all_tokens_is_no_failure_and_before_is():
    assert reply_of((9, token()), (9, token()), done=False).outcome("reset")[0] is Status.OK
    assert reply_of((9, token()), done=False).outcome("reset") == (
        Status.TRUNCATED,
        "the stream broke after 1 of 2 tokens: reset",
    )
    assert reply_of(done=False).outcome("reset") == (Status.FAILED, "reset")


@pytest.mark.parametrize(
    "payload",
    ["text", 7, None, {"choices": 3}, {"choices": [1]}, {"usage": "many"}, {"usage": {"prompt_tokens": "7"}}],
)
def test_an_event_of_the_wrong_shape_is_an_error(payload: object):
    with pytest.raises(ReplyError):
        reply_of((1, payload))


@pytest.mark.parametrize("data", [b"{", b'{"choices": [], "x": "\xff"}', b""])
def test_c08_an_event_that_cannot_be_decoded_is_an_error(data: bytes):
    with pytest.raises(ReplyError):
        Reply(1, True).feed(SSEEvent(data), 1)


@pytest.mark.parametrize(
    ("payload", "name", "status", "reason"),
    [
        (error("boom"), "", Status.FAILED, "boom"),
        (error("full", 503), "", Status.REJECTED, "full"),
        ({"object": "error", "message": "old style", "code": 400}, "", Status.FAILED, "old style"),
        ({"error": "plain"}, "", Status.FAILED, "plain"),
        ({"message": "named"}, "error", Status.FAILED, "named"),
    ],
)
def test_c09_errors_in_a_stream(payload: object, name: str, status: Status, reason: str):
    with pytest.raises(ReplyError) as caught:
        Reply(1, True).feed(SSEEvent(json.dumps(payload).encode(), name), 1)
    assert (caught.value.status, caught.value.reason) == (status, reason)


@pytest.mark.parametrize(
    ("body", "status", "expected", "reason"),
    [
        (json.dumps(error("bad field", 400)).encode(), 400, Status.FAILED, "HTTP 400: bad field"),
        (b"busy", 503, Status.REJECTED, "HTTP 503: busy"),
        (b"", 429, Status.REJECTED, "HTTP 429"),
    ],
)
def test_error_answers(body: bytes, status: int, expected: Status, reason: str):
    stated = stated_error(body, status)
    assert (stated.status, stated.reason) == (expected, reason)
