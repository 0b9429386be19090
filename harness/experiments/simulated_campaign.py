"""A campaign of simulated points, and of the bounds they are held against: finished ones are skipped."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.assembly.reading import SettingsError
from harness.experiments.bound_store import add_bounds, bound_key, read_bounds
from harness.experiments.job_runner import JobRunner, Kind
from harness.experiments.measure import recorded_settings
from harness.experiments.output import OutputSettings, tell
from harness.experiments.prepare import Prepared
from harness.experiments.simulate_point import simulate_or_fail
from harness.experiments.simulated_store import SimulatedPoint, add_simulated, read_runs, read_simulated
from harness.experiments.solve_bound import BoundTask, solve_or_fail
from harness.measurement.bound import Bound
from harness.measurement.store import StoreError


class SimulatedCampaign:
    """Simulates points of one experiment. origin: the provenance of this run, kept beside its points."""

    def __init__(self, output: OutputSettings, experiment: str, origin: Mapping[str, Any]) -> None:
        self._output = output
        self._folder = Path(output.results) / "raw" / experiment
        self._origin = origin
        self._runner = JobRunner(output)

    @property
    def status(self) -> int:
        """The command's exit status so far."""
        return self._runner.status

    @property
    def stopped(self) -> bool:
        """Whether nothing more is to begin."""
        return self._runner.stopped

    def run(self, points: Sequence[Prepared]) -> dict[str, SimulatedPoint]:
        """Those that are there at the end, by id. Raises SettingsError for a store that is damaged."""
        there = _read(self._folder)
        if self._output.redo:
            there = {}
        todo = [ready for ready in points if ready.point not in there]
        if len(todo) < len(points):
            tell(f"{len(points) - len(todo)} of {len(points)} points are finished already")
        kind = Kind(
            "points",
            simulate_or_fail,
            name=lambda ready: ready.point,
            weight=lambda ready: len(ready.window.rows),
            say=_attainment,
            keep=lambda found: add_simulated(self._folder, found, self._origin),
        )
        found = self._runner.run(todo, kind)
        return {**{ready.point: there[ready.point] for ready in points if ready.point in there}, **found}

    def bound(self, points: Sequence[Prepared], batch_tokens: int, worst_class: bool) -> None:
        """Solve the bounds that are not there yet, one for all systems under one load. batch_tokens: trace tokens.

        Raises SettingsError for a store that is damaged.
        """
        tasks = {bound_key(recorded_settings(ready)): ready for ready in points}
        there = _read_bounds(self._folder, batch_tokens)
        if self._output.redo:
            there = {}
        if worst_class:
            there = {key: bound for key, bound in there.items() if bound.complete}
        todo = [BoundTask(key, ready, batch_tokens, worst_class) for key, ready in tasks.items() if key not in there]
        kind = Kind(
            "bounds",
            solve_or_fail,
            name=lambda task: task.key,
            weight=lambda task: len(task.ready.window.rows) * task.ready.settings.load.rate_scale,
            say=_share,
            keep=lambda found: add_bounds(self._folder, found, batch_tokens),
        )
        if not self._runner.stopped:
            self._runner.run(todo, kind)


def _read(folder: Path) -> dict[str, SimulatedPoint]:
    try:
        read_runs(folder)
        return read_simulated(folder)
    except StoreError as error:
        raise SettingsError(str(error)) from error


def _read_bounds(folder: Path, batch_tokens: int) -> dict[str, Bound]:
    try:
        return read_bounds(folder, batch_tokens)
    except StoreError as error:
        raise SettingsError(str(error)) from error


def _attainment(point: SimulatedPoint) -> str:
    share = point.row.get("attainment")
    return "no request has an SLO" if share is None else f"attainment {share:.1%}"


def _share(bound: Bound) -> str:
    return "of no requests" if bound.overall is None else f"attainment at most {bound.overall:.1%}"
