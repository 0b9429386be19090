"""Runs simulated points side by side: finished ones are skipped, a failing one does not stop the others."""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from engine.core.command_line import INTERRUPTED_STATUS
from harness.experiments.campaign import OutputSettings, clock_text, tell
from harness.experiments.prepare import Prepared
from harness.experiments.side_by_side import Died, side_by_side, stop_at_once
from harness.experiments.simulate_point import Failure, simulate_or_fail
from harness.experiments.simulated_store import SimulatedPoint, add_simulated, read_simulated

KEEP_EVERY_S = 20.0
"""How often finished points are written."""
TELL_EVERY_S = 5.0
"""How often progress is told."""


class SimulatedCampaign:
    """Simulates points of one experiment. `status` is the command's exit status so far.

    origin: the provenance of this run, kept beside its points.
    """

    def __init__(self, output: OutputSettings, experiment: str, origin: Mapping[str, Any]) -> None:
        self._output = output
        self._folder = Path(output.results) / "raw" / experiment
        self._origin = origin
        self._interrupts = 0
        self._unwritten: dict[str, SimulatedPoint] = {}
        self._written_at_s = time.monotonic()
        self.status = 0

    @property
    def stopped(self) -> bool:
        """Whether nothing more is to begin."""
        return self._interrupts > 0 or (self._output.fail_fast and self.status != 0)

    def run(self, points: Sequence[Prepared]) -> dict[str, SimulatedPoint]:
        """Those that are there at the end, by id. Raises StoreError for a store that is damaged."""
        there = {} if self._output.redo else read_simulated(self._folder)
        todo = [ready for ready in points if ready.point not in there]
        if len(todo) < len(points):
            tell(f"{len(points) - len(todo)} of {len(points)} points are finished already")
        found = {ready.point: there[ready.point] for ready in points if ready.point in there}
        if todo:
            found.update(self._simulate(todo))
        return found

    def _simulate(self, todo: Sequence[Prepared]) -> dict[str, SimulatedPoint]:
        workers = min(workers_of(self._output), len(todo))
        tell(f"simulating {len(todo)} points, {workers} side by side")
        progress = _Progress(todo)
        found: dict[str, SimulatedPoint] = {}
        with self._interruptible():
            try:
                for ready, outcome in _outcomes(todo, workers, lambda: self.stopped):
                    progress.ended(ready)
                    if isinstance(outcome, SimulatedPoint):
                        found[ready.point] = self._unwritten[ready.point] = outcome
                        progress.say(ready, outcome)
                    else:
                        self._fail(ready, outcome)
                    if time.monotonic() - self._written_at_s > KEEP_EVERY_S:
                        self._keep()
            finally:
                self._keep()
        if self._interrupts:
            self.status = INTERRUPTED_STATUS
            tell(f"stopped: {len(found)} of {len(todo)} points are kept")
        return found

    def _fail(self, ready: Prepared, outcome: Failure | Died) -> None:
        self.status = max(self.status, 1)
        if isinstance(outcome, Died):
            tell(f"{ready.point}: FAILED: its process ended, killed or out of memory")
            return
        if outcome.details:
            print(outcome.details, file=sys.stderr)
        tell(f"{ready.point}: FAILED: {outcome.sentence}")

    def _keep(self) -> None:
        if self._unwritten:
            add_simulated(self._folder, self._unwritten, self._origin)
            self._unwritten = {}
        self._written_at_s = time.monotonic()

    @contextlib.contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM: points under way end, none begins; again: at once."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self._press) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _press(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - a signal handler's arguments
        self._interrupts += 1
        if self._interrupts == 1:
            tell("stopping: no point begins, those under way end (again: stop at once)")
        else:
            stop_at_once()


def workers_of(output: OutputSettings) -> int:
    """Processes side by side: as set, else the cores this process may use."""
    if output.workers is not None:
        return output.workers
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


def _outcomes(
    todo: Sequence[Prepared], workers: int, stopped: Any
) -> Iterator[tuple[Prepared, SimulatedPoint | Failure | Died]]:
    if workers > 1:
        yield from side_by_side(simulate_or_fail, todo, workers, stopped)
        return
    for ready in todo:
        if stopped():
            return
        yield ready, simulate_or_fail(ready)


class _Progress:
    """Tells how far things are; the time left by the requests that are still to be simulated."""

    def __init__(self, todo: Sequence[Prepared]) -> None:
        self._points = len(todo)
        self._ended = 0
        self._rows_left = self._rows = sum(len(ready.window.rows) for ready in todo)
        self._began_at_s = time.monotonic()
        self._told_at_s = self._began_at_s

    def ended(self, ready: Prepared) -> None:
        """One more, well or not."""
        self._ended += 1
        self._rows_left -= len(ready.window.rows)

    def say(self, ready: Prepared, point: SimulatedPoint) -> None:
        """At most once in a while, and for the last one."""
        now_s = time.monotonic()
        if now_s - self._told_at_s < TELL_EVERY_S and self._ended < self._points:
            return
        self._told_at_s = now_s
        left_s = (now_s - self._began_at_s) * self._rows_left / max(1, self._rows - self._rows_left)
        share = point.row.get("attainment")
        shown = "no request has an SLO" if share is None else f"attainment {share:.1%}"
        tell(f"[{self._ended}/{self._points}] {ready.point}: {shown}; {clock_text(left_s)} left")
