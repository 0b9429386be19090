"""Runs points one after another: what is finished is skipped, a failing point does not stop the others."""

import asyncio
import contextlib
import shutil
import signal
import time
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from engine.core.command_line import INTERRUPTED_STATUS, MISTAKE_STATUS
from engine.core.record import RequestRecord, Status
from harness.assembly.reading import SettingsError
from harness.experiments.locks import (
    HeldElsewhereError,
    StoppedWaitingError,
    exclusive,
    exclusive_when_free,
    machine_when_free,
)
from harness.experiments.machine import pinned, share_cores
from harness.experiments.measure import Measured, StoppedBeforeError, measure, unless_stopped
from harness.experiments.output import OutputSettings, clock_text, tell
from harness.experiments.prepare import Prepared
from harness.experiments.rival_server import NotRunError
from harness.experiments.room import GO_ON, reason, require_room
from harness.experiments.servers import ServerFailedError, ServerPool, Serving
from harness.loadgen.errors import LoadRefusedError
from harness.loadgen.interrupt import Interrupt
from harness.measurement.attainment import attainment
from harness.measurement.store import Point, PointExistsError, PointState, StoreError, point_state, read_point

Found = TypeVar("Found")

OVERHEAD_S = 3.0
"""Added to a point's arrivals for the first estimate of the time left; measured times correct it."""


def point_folder(results: Path, experiment: str, point: str) -> Path:
    """Where a point's raw facts are."""
    return results / "raw" / experiment / point


class Campaign:
    """Measures points in order on one event loop. `status` is the command's exit status so far."""

    def __init__(self, output: OutputSettings) -> None:
        self._output = output
        self._results = Path(output.results)
        self._interrupt = Interrupt()
        self._pool: ServerPool | None = None
        self._expected_left_s = 0.0
        self._expected_done_s = 0.0
        self._spent_s = 0.0
        self.status = 0

    @property
    def stopped(self) -> bool:
        """Whether nothing more is to be measured: the user interrupted, or a point failed with fail_fast."""
        return self._interrupt.stop_sending.is_set() or (self._output.fail_fast and self.status != 0)

    async def run(self, points: Sequence[Prepared]) -> list[Point | None]:
        """Measure those that are not finished; None = it failed, or was not reached. Call within `serving`."""
        todo = [ready for ready in points if not self._finished(ready)]
        if len(todo) < len(points):
            tell(f"{len(points) - len(todo)} of {len(points)} points are finished already")
        self._expected_left_s += sum(ready.expected_s + OVERHEAD_S for ready in todo)
        found = {ready.point: self._read(ready) for ready in points if ready not in todo}
        held: list[Prepared] = []
        for number, ready in enumerate(todo, start=1):
            place = f"[{number}/{len(todo)}]"
            if self.stopped:
                break
            try:
                with exclusive(self._lock(ready)):
                    found[ready.point] = await self._one(ready, place)
            except HeldElsewhereError as error:
                held.append(ready)
                self._say(place, ready, f"{error}, and is looked for at the end")
            except OSError as error:  # of the lock itself
                self._fail(place, ready, f"{reason(error)}; {GO_ON}")
        for ready in held:
            if not self.stopped:
                found[ready.point] = await self._once_free(ready)
        return [found.get(ready.point) for ready in points]

    async def _once_free(self, ready: Prepared) -> Point | None:
        """A point that another run was at: it may have failed there, or been killed."""
        try:
            async with exclusive_when_free(self._lock(ready), self._interrupt.stop_sending):
                return await self._one(ready, "[again]")
        except StoppedWaitingError:
            self._say("[again]", ready, "stopped before it was there")
        except OSError as error:
            self._fail("[again]", ready, f"{reason(error)}; {GO_ON}")
        return None

    async def beside(self, ready: Prepared, what: str, work: Callable[[Serving], Awaitable[Found]]) -> Found | str:
        """Do something else than a point with a point's server, as a point is measured: alone, on the client's cores.

        The answer is a sentence where it could not be done. Call within `serving`.
        """
        assert self._pool is not None
        profile = None if ready.profile is None else ready.profile.path
        pool = self._pool

        async def do() -> Found:
            serving = await pool.get(ready.settings, profile)
            with pinned(serving.cores.others):
                return await work(serving)

        try:
            async with machine_when_free(tell, self._interrupt.stop_sending, self._output.share_machine):
                return await unless_stopped(do(), self._interrupt)
        except (StoppedBeforeError, StoppedWaitingError):
            reason = "stopped before it was done"
        except NotRunError as error:
            reason = f"not run: {error}"
        except (SettingsError, ServerFailedError, LoadRefusedError, OSError) as error:
            reason = f"FAILED: {error}"
        self.status = max(self.status, 1)
        tell(f"{what}: {reason}")
        return reason

    @contextlib.contextmanager
    def serving(self, first: Prepared) -> Iterator[None]:
        """Take signals, and stop the server at the end, whatever happens."""
        loop = asyncio.get_running_loop()
        cores = share_cores(first.settings.device)
        logs = self._results / "raw" / first.settings.experiment
        self._pool = ServerPool(cores, logs, tell)
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._press)
        try:
            yield
        finally:
            self._pool.close()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)
            if self._interrupt.stop_sending.is_set():
                self.status = INTERRUPTED_STATUS

    def _press(self) -> None:
        hard = self._interrupt.stop_sending.is_set()
        tell("stopping now" if hard else "stopping: nothing more is sent, open requests end (again: stop at once)")
        self._interrupt.press()

    def _folder(self, ready: Prepared) -> Path:
        return point_folder(self._results, ready.settings.experiment, ready.point)

    def _lock(self, ready: Prepared) -> Path:
        folder = self._folder(ready)
        return folder.with_name(f".{folder.name}.lock")

    def _read(self, ready: Prepared) -> Point | None:
        """A point that is there; None where it is of another format."""
        try:
            return read_point(self._folder(ready))
        except StoreError as error:
            self._fail("[there]", ready, str(error))
            return None

    def _finished(self, ready: Prepared) -> bool:
        return not self._output.redo and _stands(self._folder(ready))

    async def _one(self, ready: Prepared, place: str) -> Point | None:
        """Measure a point whose lock is held. None = it failed."""
        began_s = time.monotonic()
        point: Point | None = None
        try:
            async with machine_when_free(tell, self._interrupt.stop_sending, self._output.share_machine):
                if self._finished(ready):
                    raise PointExistsError
                measured = await self._measure(ready, self._folder(ready))
            point = measured.point
            self._say(place, ready, _outcome(measured))
            if measured.failure is not None:
                self._fail(place, ready, measured.failure)
        except (StoppedBeforeError, StoppedWaitingError):
            self._say(place, ready, "stopped before it began")
        except NotRunError as error:
            self.status = max(self.status, 1)
            self._say(place, ready, f"not run: {error}")
        except PointExistsError:
            self._say(place, ready, "finished by another run meanwhile")
            point = self._read(ready)
        except SettingsError as error:
            self._fail(place, ready, str(error), MISTAKE_STATUS)
        except (ServerFailedError, LoadRefusedError, StoreError) as error:
            self._fail(place, ready, str(error))
        except OSError as error:
            self._fail(place, ready, f"{reason(error)}; {GO_ON}")
        except Exception as error:  # noqa: BLE001 - see below
            # A fault of this program must cost one point, not the hours of the others; it is told in full.
            traceback.print_exc()
            self._fail(place, ready, f"{type(error).__name__}: {error}")
        self._account(ready, time.monotonic() - began_s)
        return point

    async def _measure(self, ready: Prepared, folder: Path) -> Measured:
        assert self._pool is not None
        require_room(folder)
        if point_state(folder) is PointState.FINISHED:
            folder.rename(folder.with_name(f".{folder.name}.{time.time_ns()}.replaced"))
        try:
            return await measure(ready, folder, self._pool, self._interrupt)
        finally:
            _forget_replaced(folder)

    def _account(self, ready: Prepared, spent_s: float) -> None:
        expected_s = ready.expected_s + OVERHEAD_S
        self._expected_left_s -= expected_s
        self._expected_done_s += expected_s
        self._spent_s += spent_s

    def _say(self, place: str, ready: Prepared, text: str) -> None:
        ready_s = ready.expected_s + OVERHEAD_S
        pace = self._spent_s / self._expected_done_s if self._expected_done_s else 1.0
        left_s = max(0.0, (self._expected_left_s - ready_s) * pace)
        tell(f"{place} {ready.point}: {text}; {clock_text(left_s)} left")

    def _fail(self, place: str, ready: Prepared, reason: str, status: int = 1) -> None:
        self.status = max(self.status, status)
        tell(f"{place} {ready.point}: FAILED: {reason}")


def _stands(folder: Path) -> bool:
    """Whether the point there needs no rerun: it is whole, and its server survived it."""
    if point_state(folder) is not PointState.FINISHED:
        return False
    try:
        return read_point(folder).server_alive
    except StoreError:  # of another format: told where it is read
        return True


def _outcome(measured: Measured) -> str:
    point = measured.point
    report = attainment(point.counted)
    verdict = point.judged().verdict
    share, worst = report.overall.share, report.worst.share
    shown = "no request has an SLO" if share is None else f"attainment {share:.1%}"
    if worst is not None and report.worst_class:
        shown += f" (worst class {report.worst_class} {worst:.1%})"
    due = f"{len(point.records)} due at {point.facts.rate_rps:.3g}/s{not_served(point.records)}"
    return f"{shown}, {due}, {verdict.value}"


def not_served(records: Sequence[RequestRecord]) -> str:
    """How many requests did not end well, and how most of these ended; "" of none."""
    causes = Counter(f"{record.status}: {record.reason}" for record in records if record.status is not Status.OK)
    if not causes:
        return ""
    (cause, count), total = causes.most_common(1)[0], causes.total()
    return f" ({total} not served, {'all' if count == total else count} of them {cause})"


def _forget_replaced(folder: Path) -> None:
    """After a `redo`: the old point goes once the new one is in place; else it comes back."""
    for old in folder.parent.glob(f".{folder.name}.*.replaced"):
        if point_state(folder) is PointState.ABSENT:
            old.rename(folder)
        else:
            shutil.rmtree(old, ignore_errors=True)
