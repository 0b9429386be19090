"""Our client on the real vLLM and SGLang: prompts as token ids, usage, ends, refusals. python -m pytest -m servers"""

import asyncio
import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest

from engine.core.record import RequestRecord, Status
from engine.core.slo import SLO
from engine.core.trace import PlannedRequest
from engine.torch_backend.checkpoint_folder import write_checkpoint
from harness.loadgen.player import play
from harness.loadgen.settings import PlayerSettings, ShowProgress, Target
from harness.loadgen.sse import SSEParser
from tests.baselines.real_server import launch_of, present, running
from tests.clients.test_transcripts import TRANSCRIPTS, events_of

pytestmark = [pytest.mark.servers, pytest.mark.timeout(1800)]
LENGTHS = (1, 2, 16, 300, 3000)


@pytest.fixture(scope="module", params=["vllm", "sglang"], name="served")
def _served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Target]]:
    folder = tmp_path_factory.mktemp(request.param) / "model"
    write_checkpoint("cpu_demo", folder)
    launch = launch_of(request.param, folder)
    with running(request.param, launch, folder.parent / "log") as (_, target):
        yield request.param, target


def played(target: Target, requests: list[PlannedRequest], **changes: Any) -> tuple[RequestRecord, ...]:
    settings = PlayerSettings(**{"request_timeout_s": 300.0, "drain_s": 300.0, "progress": ShowProgress.OFF, **changes})
    return asyncio.run(play(requests, target, settings)).records


def plan(name: str, tokens: int, max_tokens: int) -> PlannedRequest:
    prompt = tuple(16 + (7 * i + tokens) % 4000 for i in range(tokens))
    return PlannedRequest(name, 0, prompt, max_tokens, SLO(250_000_000), "text")


def test_lengths_usage_and_tokens_are_as_asked(served: tuple[str, Target]) -> None:
    requests = [plan(f"{tokens}-{most}", tokens, most) for tokens in LENGTHS for most in (1, 5)]
    for asked, record in zip(requests, played(served[1], requests), strict=True):
        assert (record.status, record.reason) == (Status.OK, ""), record
        assert (record.server_prompt_tokens, record.output_tokens) == (len(asked.token_ids), asked.max_tokens)
        assert not record.output_estimated
        assert record.first_token_at_ns is not None
        assert (record.tbt_max_ns is None) == (record.first_token_at_ns == record.last_token_at_ns)


def test_a_prompt_over_its_context_is_refused_with_the_servers_reason(served: tuple[str, Target]) -> None:
    (record,) = played(served[1], [plan("long", 5000, 1)])
    assert record.status is Status.FAILED
    assert record.reason.startswith("HTTP 400: ")
    assert "4096" in record.reason


def test_only_vllm_knows_the_name_of_its_model(served: tuple[str, Target]) -> None:
    """SGLang answers to any name, and in it: there the name alone does not tell who answered."""
    server, target = served
    (record,) = played(Target(target.base_url, "another"), [plan("named", 4, 1)])
    assert (record.status is Status.OK) == (server == "sglang")


def test_the_recorded_streams_are_still_what_it_sends(served: tuple[str, Target]) -> None:
    """The fields of a chunk with a token, and of the last one with usage; and the tokens themselves."""
    server, target = served
    recorded = f"{server}-{present(server).version}-token_ids"  # type: ignore[arg-type]
    if not (TRANSCRIPTS / f"{recorded}.sse").is_file():
        pytest.skip(f"there is no transcript {recorded}")
    body = {"model": target.model, "prompt": [136, 137], "max_tokens": 3, "temperature": 0, "ignore_eos": True}
    asked = {**body, "stream": True, "stream_options": {"include_usage": True}, "return_token_ids": True}
    connection = http.client.HTTPConnection(target.base_url.removeprefix("http://"), timeout=300)
    connection.request("POST", "/v1/completions", json.dumps(asked), {"Content-Type": "application/json"})
    events = SSEParser().feed(connection.getresponse().read())
    connection.close()
    assert events[-1].data == b"[DONE]"
    now = [json.loads(event.data) for event in events[:-1]]
    then = [json.loads(event.data) for event in events_of(recorded)[:-1]]
    assert [shape(now[0]), shape(now[-1])] == [shape(then[0]), shape(then[-1])]
    assert tokens(now) == tokens(then)


def tokens(chunks: list[dict[str, Any]]) -> list[int]:
    return [token for chunk in chunks for choice in chunk["choices"] for token in choice["token_ids"]]


def shape(chunk: dict[str, Any]) -> Any:
    """Names of its fields, and of those of its choice and usage."""
    return sorted(chunk), [sorted(choice) for choice in chunk["choices"]], sorted(chunk.get("usage") or ())
