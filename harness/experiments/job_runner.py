"""Many simulations or bounds in a row of commands: side by side, told how far they are, kept as they end, stoppable."""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Generic, TypeVar

from engine.core.command_line import INTERRUPTED_STATUS
from harness.experiments.output import OutputSettings, clock_text, tell
from harness.experiments.room import GO_ON, reason
from harness.experiments.side_by_side import Died, side_by_side, stop_at_once
from harness.measurement.store import StoreError

Job = TypeVar("Job")
Found = TypeVar("Found")

KEEP_EVERY_S = 20.0
"""How often what has ended is kept."""
TELL_EVERY_S = 5.0
"""How often progress is told."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A job that came to nothing. details: the traceback of a fault of this program, else empty."""

    sentence: str
    details: str = ""


@dataclass(frozen=True, slots=True)
class Kind(Generic[Job, Found]):
    """What is done with jobs of one kind.

    what: their plural. do: a function of a module, for a process of its own; it raises nothing. name: unique.
    weight: expected time, in any unit. say: what is told of an outcome. keep: writes what has ended since, by name.
    """

    what: str
    do: Callable[[Job], Found | Failure]
    name: Callable[[Job], str]
    weight: Callable[[Job], float]
    say: Callable[[Found], str]
    keep: Callable[[Mapping[str, Found]], None]


class JobRunner:
    """Runs jobs under one command's output settings. `status` is the command's exit status so far."""

    def __init__(self, output: OutputSettings) -> None:
        self._output = output
        self._interrupts = 0
        self._at_work_here = False
        self.status = 0

    @property
    def stopped(self) -> bool:
        """Whether nothing more is to begin."""
        return self._interrupts > 0 or (self._output.fail_fast and self.status != 0)

    def run(self, jobs: Sequence[Job], kind: Kind[Job, Found]) -> dict[str, Found]:
        """Those that ended well, by name. One that fails is told, and does not stop the others."""
        workers = min(workers_of(self._output), max(1, len(jobs)))
        progress = _Progress(kind.what, [kind.weight(job) for job in jobs])
        found: dict[str, Found] = {}
        unkept: dict[str, Found] = {}
        kept_at_s = time.monotonic()
        with self._interruptible():
            try:
                for job, outcome in self._outcomes(kind.do, jobs, workers):
                    name = kind.name(job)
                    if isinstance(outcome, Failure | Died):
                        progress.ended(kind.weight(job), None)
                        self._fail(name, outcome)
                        continue
                    found[name] = unkept[name] = outcome
                    progress.ended(kind.weight(job), f"{name}: {kind.say(outcome)}")
                    if time.monotonic() - kept_at_s > KEEP_EVERY_S:
                        unkept, kept_at_s = self._keep(kind, unkept), time.monotonic()
            finally:
                unkept = self._keep(kind, unkept)
        if self._interrupts:
            self.status = INTERRUPTED_STATUS
            tell(f"stopped: {len(found) - len(unkept)} of {len(jobs)} {kind.what} are kept")
        return found

    def _keep(self, kind: Kind[Job, Found], unkept: Mapping[str, Found]) -> dict[str, Found]:
        """What could not be kept: to be tried again."""
        if unkept:
            try:
                kind.keep(unkept)
            except (StoreError, OSError) as error:
                self.status = max(self.status, 1)
                why = reason(error) if isinstance(error, OSError) else str(error)
                tell(f"{len(unkept)} {kind.what} could not be kept: {why}; {GO_ON}")
                return dict(unkept)
        return {}

    def _fail(self, name: str, outcome: Failure | Died) -> None:
        self.status = max(self.status, 1)
        if isinstance(outcome, Died):
            tell(f"{name}: FAILED: its process ended, killed or out of memory")
            return
        if outcome.details:
            print(outcome.details, file=sys.stderr)
        tell(f"{name}: FAILED: {outcome.sentence}")

    @contextlib.contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM: jobs under way end, none begins; again: at once."""
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
            tell("stopping: nothing more begins, what is under way ends (again: stop at once)")
            return
        stop_at_once()
        if self._at_work_here:
            raise KeyboardInterrupt

    def _outcomes(
        self, do: Callable[[Job], Found | Failure], jobs: Sequence[Job], workers: int
    ) -> Iterator[tuple[Job, Found | Failure | Died]]:
        """One worker needs no process of its own."""
        if workers > 1:
            yield from side_by_side(do, jobs, workers, lambda: self.stopped)
            return
        for job in jobs:
            if self.stopped:
                return
            self._at_work_here = True
            try:
                outcome = do(job)
            except KeyboardInterrupt:
                return
            finally:
                self._at_work_here = False
            yield job, outcome


def workers_of(output: OutputSettings) -> int:
    """Processes side by side: as set, else the cores this process may use."""
    if output.workers is not None:
        return output.workers
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


class _Progress:
    """Tells how far things are, and the time left by the weights of what is still to be done."""

    def __init__(self, what: str, weights: Sequence[float]) -> None:
        self._count = len(weights)
        self._ended = 0
        self._left = self._all = sum(weights)
        self._began_at_s = self._told_at_s = time.monotonic()
        if weights:
            tell(f"{what} to go: {self._count}")

    def ended(self, weight: float, text: str | None) -> None:
        """One more. text: told at most once in a while, and for the last one; None = told already."""
        self._ended += 1
        self._left -= weight
        now_s = time.monotonic()
        if text is None or (now_s - self._told_at_s < TELL_EVERY_S and self._ended < self._count):
            return
        self._told_at_s = now_s
        done = max(self._all - self._left, 1e-9)
        left_s = (now_s - self._began_at_s) * max(0.0, self._left) / done
        tell(f"[{self._ended}/{self._count}] {text}; {clock_text(left_s)} left")
