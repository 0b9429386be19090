"""Short ways to plan requests and play them against a golden server."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from engine.core.slo import SLO
from engine.core.trace import PlannedRequest
from harness.loadgen.interrupt import Interrupt
from harness.loadgen.player import RunResult, play
from harness.loadgen.settings import PlayerSettings, ShowProgress, SLOStyle, Target
from tests.fakes.golden_script import MODEL, Respond
from tests.fakes.golden_server import GoldenServer

MS = 1_000_000
RUN_S = 100.0
"""Whatever a busy machine does, a run that should end has ended by then."""
SURELY_S = 2.0
"""A limit that is waited out, long enough for what a test expects to come before it."""


def plan(index: int, due_ms: float = 0.0, *, max_tokens: int = 1, tokens: int = 3, ttft_ms: float | None = None):
    slo = SLO(None if ttft_ms is None else round(ttft_ms * MS))
    return PlannedRequest(f"r{index}", round(due_ms * MS), tuple(range(1, tokens + 1)), max_tokens, slo, "text")


def plans(count: int, gap_ms: float = 0.0, **more: Any) -> list[PlannedRequest]:
    return [plan(index, index * gap_ms, **more) for index in range(count)]


def settings(**changes: Any) -> PlayerSettings:
    return PlayerSettings(
        **{"request_timeout_s": 60.0, "drain_s": 60.0, "lead_in_s": 0.02, "progress": ShowProgress.OFF} | changes
    )


def target(base_url: str, style: SLOStyle = SLOStyle.FIELDS) -> Target:
    return Target(base_url, MODEL, slo_style=style)


async def play_against(
    respond: Respond,
    requests: Sequence[PlannedRequest],
    changed: PlayerSettings | None = None,
    interrupt: Interrupt | None = None,
) -> tuple[RunResult, GoldenServer]:
    async with GoldenServer(respond) as server:
        result = await play(requests, target(server.base_url), changed or settings(), interrupt=interrupt)
    return result, server


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work, RUN_S))


def played(respond: Respond, requests: Sequence[PlannedRequest], **changes: Any) -> tuple[RunResult, GoldenServer]:
    return run(play_against(respond, requests, settings(**changes)))


def only_record(respond: Respond, **more: Any):
    """The record of one request."""
    result, _ = played(respond, [plan(0, **more)])
    return result.records[0]
