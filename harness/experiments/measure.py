"""One point, measured: requests planned, server ready, load played, facts written."""

import asyncio
import sys
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from engine.core.record import EngineReport
from harness.assembly.effective import EffectiveTokens
from harness.assembly.point import settings_mapping
from harness.assembly.requests import asked_rps, plan_point
from harness.experiments.machine import pinned
from harness.experiments.prepare import Prepared
from harness.experiments.provenance import provenance
from harness.experiments.servers import ServerFailedError, ServerPool, Serving
from harness.loadgen.interrupt import Interrupt
from harness.loadgen.player import RunResult, play
from harness.loadgen.settings import PlayerSettings, ShowProgress
from harness.measurement.store import Point, write_point

SERVER_LOG = "server.log"
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Measured:
    """A point that has been written. failure: a sentence when not one request succeeded."""

    point: Point
    failure: str | None


class StoppedBeforeError(Exception):
    """The user interrupted while the server started: nothing has been sent."""


async def measure(ready: Prepared, folder: Path, pool: ServerPool, interrupt: Interrupt) -> Measured:
    """Measure a point and write its folder.

    Raises SettingsError, ServerFailedError, LoadRefusedError, StoppedBeforeError (nothing is written then),
    PointExistsError.
    """
    settings = ready.settings
    requests = plan_point(settings, ready.window, ready.given.slo_speed_factor)
    serving = await unless_stopped(pool.get(settings, None if ready.profile is None else ready.profile.path), interrupt)
    with pinned(serving.cores.others):
        result = await play(requests, serving.target, player_settings(ready), interrupt=interrupt)
    report, alive = await _report(pool, serving)
    at_rest = await _at_rest(pool, serving) if alive and not interrupt.stop_sending.is_set() else None
    facts = ready.facts(asked_rps(requests))
    point = Point(
        facts=facts,
        settings=recorded_settings(ready),
        provenance=_provenance(ready, serving),
        records=result.records,
        engine=report,
        client=result.client,
        server_alive=alive,
        server_at_rest=at_rest,
    )
    write_point(folder, point)
    failure = _failure(result, alive, at_rest, interrupt)
    if failure is not None or serving.rival:
        pool.keep_log(serving, folder.with_name(f"{folder.name}.{SERVER_LOG}"))
    return Measured(point, failure)


def player_settings(ready: Prepared) -> PlayerSettings:
    """How the client behaves; without `drain_s` the drain lasts until every request ended or timed out."""
    load, protocol = ready.settings.load, ready.settings.protocol
    return PlayerSettings(
        request_timeout_s=load.request_timeout_s,
        drain_s=load.request_timeout_s if load.drain_s is None else load.drain_s,
        give_up_slo_multiple=protocol.give_up_slo_multiple,
        connect_timeout_s=load.connect_timeout_s,
        progress=ShowProgress.AUTO if sys.stderr.isatty() else ShowProgress.OFF,
    )


def recorded_settings(ready: Prepared) -> dict[str, Any]:
    """What the point's hash was made of, and the token counts its length scale gave."""
    device_profile = ready.given.device_profile_digest
    return {
        **settings_mapping(ready.settings),
        "effective": EffectiveTokens.of(ready.settings).columns(),
        "input": {
            "trace_sha256": ready.given.trace_digest,
            "profile_sha256": ready.given.profile_digest,
            "slo_speed_factor": ready.given.slo_speed_factor,
            **({"device_profile_sha256": device_profile} if device_profile else {}),
        },
    }


async def unless_stopped(starting: Coroutine[Any, Any, Found], interrupt: Interrupt) -> Found:
    """A server can take minutes to start; an interrupt ends that at once. Raises StoppedBeforeError."""
    task, stop = asyncio.ensure_future(starting), asyncio.ensure_future(interrupt.stop_sending.wait())
    try:
        await asyncio.wait([task, stop], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise StoppedBeforeError
    finally:
        stop.cancel()
        task.cancel()
        # The start stops its server on the way out.
        await asyncio.wait([task])


async def _report(pool: ServerPool, serving: Serving) -> tuple[EngineReport | None, bool]:
    try:
        return await pool.report(serving), True
    except ServerFailedError as error:
        print(f"  {error}", file=sys.stderr)
        return None, False


async def _at_rest(pool: ServerPool, serving: Serving) -> bool | None:
    try:
        return await pool.at_rest(serving)
    except ServerFailedError as error:
        print(f"  {error}", file=sys.stderr)
        return None


def _failure(result: RunResult, alive: bool, at_rest: bool | None, interrupt: Interrupt) -> str | None:
    if interrupt.stop_sending.is_set():
        return None
    if not alive:
        return "the server did not survive the run"
    return "the server did not come to rest after the run" if at_rest is False else result.total_failure()


def _server_command(serving: Serving) -> list[str]:
    if serving.rival or not serving.command:
        return list(serving.command)
    return ["python", *serving.command]


def _provenance(ready: Prepared, serving: Serving) -> dict[str, Any]:
    profile = ready.profile
    return provenance(
        recorded_settings(ready),
        device=ready.device,
        seed=ready.settings.load.seed,
        server_command=_server_command(serving),
        **({"rival": dict(serving.rival)} if serving.rival else {}),
        **({"engine_processes": [dict(each) for each in serving.processes]} if serving.processes else {}),
        profile=None if profile is None else {"sha256": profile.digest, "torch": profile.content.get("torch")},
    )
