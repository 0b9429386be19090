"""Between two points a kept server must come to rest: nothing live, every KV block free."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from harness.experiments import servers
from harness.experiments.machine import Cores
from harness.experiments.servers import ServerFailedError, ServerPool, Serving
from harness.loadgen.settings import Target

REST: dict[str, Any] = {
    "waiting": 0, "executing": 0, "preempted": 0, "decoding": 0, "handing_over": 0, "open_requests": 0,
    "kv_blocks_free": 8, "kv_blocks_total": 8, "activation_bytes": 0,
}  # fmt: skip


def settle(states: list[dict[str, Any]], tmp_path: Path) -> list[str]:
    """Let the pool settle a server that shows these states one after the other, the last for ever."""
    asked: list[str] = []

    async def state(_: web.Request) -> web.Response:
        asked.append("state")
        return web.json_response(states.pop(0) if len(states) > 1 else states[0])

    async def reset(_: web.Request) -> web.Response:
        asked.append("reset")
        return web.json_response({})

    async def whole() -> None:
        app = web.Application()
        app.add_routes([web.get("/state", state), web.post("/report/reset", reset)])
        async with TestServer(app) as server:
            pool = ServerPool(Cores(None, None), tmp_path, lambda _: None)
            await pool._settle(Serving(Target(f"http://127.0.0.1:{server.port}", "m"), ("x",), None))

    asyncio.run(whole())
    return asked


def test_the_report_is_reset_once_the_server_rests(tmp_path: Path) -> None:
    busy = {**REST, "executing": 1, "kv_blocks_free": 3}
    assert settle([busy, busy, dict(REST)], tmp_path) == ["state", "state", "state", "reset"]


@pytest.mark.parametrize("leak", [{"kv_blocks_free": 7}, {"activation_bytes": 64}, {"waiting": 1}])
def test_what_an_earlier_point_left_behind_is_an_error(
    leak: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "IDLE_DEADLINE_S", 0.1)
    with pytest.raises(ServerFailedError, match="did not come to rest"):
        settle([{**REST, **leak}], tmp_path)
