"""What a point says of the time after its last client left, from a server over HTTP to the verdict in the table."""

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from engine.core.record import EngineReport
from harness.experiments import servers
from harness.experiments.campaign import Campaign
from harness.experiments.output import OutputSettings
from harness.experiments.servers import ServerPool, Serving
from harness.experiments.write_tables import write_tables
from harness.loadgen.settings import Target
from harness.measurement.store import read_point
from harness.measurement.table_file import read_table
from tests.experiments.points import prepared, profile_text
from tests.experiments.test_servers import REST

EVENT = {
    "choices": [{"index": 0, "text": "x", "finish_reason": "length"}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1},
}


@asynccontextmanager
async def engine_like(state: dict[str, Any], foreign: int) -> AsyncIterator[str]:
    """A server that answers at once, shows this state for ever, and ends so many requests besides its own."""
    ended = foreign

    async def complete(_: web.Request) -> web.Response:
        nonlocal ended
        ended += 1
        return web.Response(
            text=f"data: {json.dumps(EVENT)}\n\ndata: [DONE]\n\n", headers={"Content-Type": "text/event-stream"}
        )

    async def report(_: web.Request) -> web.Response:
        return web.json_response(dataclasses.asdict(EngineReport(completed_requests=ended)))

    async def show(_: web.Request) -> web.Response:
        return web.json_response(state)

    app = web.Application()
    app.add_routes([web.post("/v1/completions", complete), web.get("/report", report), web.get("/state", show)])
    async with TestServer(app) as server:
        yield f"http://127.0.0.1:{server.port}"


def run(
    monkeypatch: pytest.MonkeyPatch, results: Path, state: dict[str, Any], foreign: int = 0
) -> tuple[int, bool | None, dict[str, str]]:
    """Exit status, what the point keeps of the server's rest, and the point's row."""
    monkeypatch.setattr(servers, "IDLE_DEADLINE_S", 0.1)
    profile = results / "profile.json"
    profile.write_text(profile_text())
    (ready,) = prepared(str(profile), axes=[{"load.rate_scale": 1}])
    campaign = Campaign(OutputSettings(results=str(results), share_machine=True))

    async def whole() -> None:
        async with engine_like(state, foreign) as url:

            async def get(*_: object) -> Serving:
                return Serving(Target(url, "m"), ("a server",), None)

            monkeypatch.setattr(ServerPool, "get", get)
            with campaign.serving(ready):
                await campaign.run([ready])

    asyncio.run(whole())
    write_tables(results, "smoke", None, lambda _: None)
    (row,) = read_table(results / "tables" / "smoke.csv")
    return campaign.status, read_point(results / "raw" / "smoke" / ready.point).server_at_rest, row


def test_a_server_at_rest_is_kept_with_the_point(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    status, at_rest, row = run(monkeypatch, tmp_path, REST)
    assert (status, at_rest) == (0, True)
    assert row["verdict"] in ("VALID", "CLIENT-BOUND"), "the latter on a busy machine"


@pytest.mark.parametrize("left", [{"kv_blocks_free": 7}, {"executing": 1}])
def test_one_that_never_comes_to_rest_is_told_and_its_point_is_no_result(
    left: dict[str, int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, at_rest, row = run(monkeypatch, tmp_path, {**REST, **left})
    assert (status, at_rest) == (1, False)
    assert (row["verdict"], row["verdict_reason"]) == ("SERVER-FAILED", "server_at_rest")
    assert "FAILED: the server did not come to rest after the run" in capsys.readouterr().err


def test_another_clients_requests_make_the_point_incomplete(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _, _, row = run(monkeypatch, tmp_path, REST, foreign=1)
    assert (row["verdict"], row["verdict_reason"]) == ("INCOMPLETE", "warm_up_apart")
