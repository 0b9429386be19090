"""The experiment kind `real_servers`: our engine and real vLLM and SGLang servers, each at shares of its own capacity.

Each server (a system and a chunk size) is calibrated, the chunk sizes of a system are held against each other in a
short pilot, and the better one is measured: seed by seed, system by system, all rates of a seed in one life of the
server. What failed does not stop the others; what is finished is not measured again.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.assembly.reading import SettingsError, read
from harness.assembly.requests import LoadedTrace, read_trace
from harness.assembly.rival import RIVALS
from harness.experiments.calibration import (
    Calibration,
    CurveSettings,
    calibrate,
    calibration_path,
    read_calibration,
    warm,
)
from harness.experiments.campaign import OVERHEAD_S, Campaign
from harness.experiments.cells import Axes
from harness.experiments.compose import Job
from harness.experiments.output import OutputSettings, clock_text, tell
from harness.experiments.placement import placed
from harness.experiments.prepare import Prepared, Preparer
from harness.experiments.real_servers_plan import PlacedPoint, Server, read_plan, write_plan
from harness.experiments.real_servers_settings import ServersSettings
from harness.experiments.real_servers_tables import write_server_tables
from harness.measurement.attainment import attainment
from harness.measurement.store import Point, PointState, point_state

START_S = {"engine": 6.0, "vllm": 30.0, "sglang": 35.0}
"""Seconds from the start of a server to its first token on a quiet core: for the estimate of the whole."""
CALIBRATION_S = 45.0


@dataclass(frozen=True, slots=True)
class Calibrated:
    """A server that can be measured."""

    base: Prepared
    found: Calibration
    path: Path
    factor: float

    def at(self, share: float, window_s: float, seed: int, loaded: LoadedTrace) -> Prepared:
        """A point at a share of its capacity."""
        return placed(self.base, loaded, self.factor, share * self.found.capacity_rps, window_s, seed)


def run_real_servers(job: Job, axes: tuple[Axes, ...], output: OutputSettings) -> int:
    """Measure and write the tables; returns the exit status. Raises SettingsError before anything is measured."""
    asked = read(ServersSettings, job.config.get("servers"), "servers")
    preparer = Preparer(tell, job.user)
    systems: dict[str, list[Prepared]] = {}
    for one in axes:
        ready = preparer.prepare(job.compose(one))
        if ready.settings.device.simulated or ready.settings.system.backend == "server":
            raise SettingsError(
                f"experiment={ready.settings.experiment} starts servers itself: "
                f"system={ready.settings.system.name} on device={ready.settings.device.name} is none of them"
            )
        if ready.settings.protocol.min_arrivals_s is not None or ready.settings.workload.repeat_to_s is not None:
            raise SettingsError("how long a point lasts is servers.window_s here; use protocol=paper")
        systems.setdefault(ready.settings.system.name, []).append(ready)
    first = next(iter(systems.values()))[0]
    run = _Run(asked, output, first, read_trace(first.settings.workload))
    tell(f"about {clock_text(run.estimate_s(list(systems.values())))} in all, less what is finished already")
    asyncio.run(run.whole(list(systems.values())))
    for path in write_server_tables(Path(output.results), job.config["experiment"], job.config.get("reference"), tell):
        tell(f"wrote {path}")
    return run.status


class _Run:
    """One run of the experiment."""

    def __init__(self, asked: ServersSettings, output: OutputSettings, first: Prepared, loaded: LoadedTrace) -> None:
        self._asked = asked
        self._output = output
        self._first = first
        self._loaded = loaded
        self._folder = Path(output.results) / "raw" / first.settings.experiment
        self._curve = CurveSettings(asked.curve_tokens, asked.curve_repeats, asked.backlog_requests)
        self._campaign = Campaign(output)
        self._servers: list[Server] = []
        self._points: list[PlacedPoint] = []

    @property
    def status(self) -> int:
        """The command's exit status."""
        return self._campaign.status

    def estimate_s(self, systems: Sequence[Sequence[Prepared]]) -> float:
        """Seconds for everything, starts included."""
        asked = self._asked
        total = 0.0
        for sizes in systems:
            start_s = START_S[sizes[0].settings.system.backend]
            total += len(sizes) * (start_s + CALIBRATION_S)
            total += len(sizes) * (asked.pilot_window_s + OVERHEAD_S) if len(sizes) > 1 else 0.0
            total += len(asked.seeds) * (start_s + len(asked.rates_of_capacity) * (asked.window_s + OVERHEAD_S))
        return total

    async def whole(self, systems: Sequence[Sequence[Prepared]]) -> None:
        """Calibrate, choose, measure. The plan is kept as it grows, so that tables can be made of what there is."""
        with self._campaign.serving(self._first):
            chosen = [one for sizes in systems if (one := await self._choose(sizes)) is not None]
            self._keep()
            for turn, seed in enumerate(self._asked.seeds):
                # Another system begins each turn: a slow drift of the machine meets none of them alone.
                shift = turn % max(1, len(chosen))
                for one in chosen[shift:] + chosen[:shift]:
                    await self._life(one, seed)

    async def _choose(self, sizes: Sequence[Prepared]) -> Calibrated | None:
        """The better of a system's chunk sizes: by attainment in the pilot, then by its worst class."""
        tried: list[tuple[Calibrated, tuple[float, float]]] = []
        for base in sizes:
            found = await self._calibrated(base)
            if not isinstance(found, Calibrated):
                self._servers.append(Server.of(base, reason=found))
                continue
            tried.append((found, await self._pilot(found) if len(sizes) > 1 else (0.0, 0.0)))
        if not tried:
            return None
        best = max(tried, key=lambda one: one[1])[0]
        for one, _ in tried:
            self._servers.append(Server.of(one.base, one.path.name, one.found, one.factor, chosen=one is best))
        return best

    async def _calibrated(self, base: Prepared) -> Calibrated | str:
        path = calibration_path(self._folder, base, self._curve)
        found: Calibration | str | None = None if self._output.redo else read_calibration(path)
        if found is None:
            what = f"calibration of {name_of(base)}"
            found = await self._campaign.beside(base, what, lambda serving: calibrate(base, serving, self._curve, path))
        if isinstance(found, str):
            return found
        factor = found.slo_speed_factor(base, self._loaded)
        tell(f"{name_of(base)}: {found.capacity_rps:.3g} requests/s of a backlog, slo_speed_factor {factor:.3g}")
        return Calibrated(base, found, path, factor)

    async def _pilot(self, one: Calibrated) -> tuple[float, float]:
        share = self._asked.pilot_rate
        ready = one.at(share, self._asked.pilot_window_s, self._asked.seeds[0], self._loaded)
        (point,) = await self._measure(one, [ready], [share], pilot=True)
        if point is None:
            return (-1.0, -1.0)
        report = attainment(point.counted)
        return (report.overall.share or 0.0, report.worst.share or 0.0)

    async def _life(self, one: Calibrated, seed: int) -> None:
        """All rates of a seed; a server just started is warmed up first."""
        shares = self._asked.rates_of_capacity
        points = [one.at(share, self._asked.window_s, seed, self._loaded) for share in shares]
        if self._output.redo or any(not self._finished(ready) for ready in points):
            await self._campaign.beside(
                one.base, f"warming {name_of(one.base)} up", lambda serving: warm(one.base, serving, self._curve)
            )
        await self._measure(one, points, shares, pilot=False)

    async def _measure(
        self, one: Calibrated, points: Sequence[Prepared], shares: Sequence[float], pilot: bool
    ) -> list[Point | None]:
        system = one.base.settings.system
        self._points += [
            PlacedPoint(ready.point, system.name, system.chunk_tokens, pilot, share, one.found.capacity_rps)
            for ready, share in zip(points, shares, strict=True)
        ]
        self._keep()
        return await self._campaign.run(points)

    def _finished(self, ready: Prepared) -> bool:
        return point_state(self._folder / ready.point) is PointState.FINISHED

    def _keep(self) -> None:
        plan = read_plan(self._folder).with_more(self._servers, self._points, len(self._first.window.rows))
        write_plan(self._folder, plan)


def name_of(base: Prepared) -> str:
    """A server, for a person."""
    system = base.settings.system
    return system.series if system.backend not in RIVALS else f"{system.series}, chunk {system.chunk_tokens}"
