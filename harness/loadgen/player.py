"""Plays a schedule of requests against a server, open loop, and returns a record of each."""

import asyncio
import collections.abc as c
import contextlib
import functools
import gc
import time
from collections import Counter
from dataclasses import dataclass

from engine.core.clock import NS_PER_S, seconds_to_ns
from engine.core.record import ClientReport, RequestRecord, Status
from engine.core.trace import PlannedRequest
from harness.loadgen.bodies import Bodies
from harness.loadgen.client import CompletionsClient, Exchange, instant_to_give_up_ns
from harness.loadgen.client_report import SelfWatch, client_report
from harness.loadgen.errors import OpenFilesLimitError
from harness.loadgen.interrupt import Interrupt
from harness.loadgen.open_files import ensure_open_files
from harness.loadgen.pacing import longest_lifetime_s, pace, peak_in_flight
from harness.loadgen.progress import QUIET_NEEDED_S, Progress, Standing, open_progress
from harness.loadgen.request_body import PreparedRequest
from harness.loadgen.settings import PlayerSettings, Target
from harness.loadgen.timer import open_waker

PROGRESS_PERIOD_S = 1.0


@dataclass(frozen=True, slots=True)
class RunResult:
    """Facts of one run. records: every due request, in order of due instants."""

    records: tuple[RequestRecord, ...]
    client: ClientReport

    def total_failure(self) -> str | None:
        """A sentence when not one request succeeded (such a run has no latency to report); else None."""
        if any(record.status is Status.OK for record in self.records):
            return None
        if not self.records:
            return "no request was due"
        causes = Counter(f"{record.status}: {record.reason}" for record in self.records)
        cause, count = causes.most_common(1)[0]
        return f"none of {len(self.records)} requests succeeded; {count} ended {cause}"


async def play(
    requests: c.Sequence[PlannedRequest],
    target: Target,
    settings: PlayerSettings,
    *,
    interrupt: Interrupt | None = None,
    progress: Progress | None = None,
) -> RunResult:
    """Send every request at its due instant and await the replies.

    Open files are ensured before the clock starts, and bodies serialised, of a long run those that fit (`bodies`).
    interrupt: lets a user stop the run; the records are returned all the same.
    progress: in place of what `settings.progress` names.
    Raises OpenFilesLimitError before the start; ValueError for ids used twice or a due instant below 0.
    """
    plans = sorted(requests, key=lambda plan: plan.due_ns)
    _check(plans)
    open_files_limit = _ensure_open_files(plans, settings)
    bodies = Bodies(plans, target, settings)
    shown = open_progress(settings.progress) if progress is None else progress
    async with CompletionsClient(target, settings) as client:
        with _quiet_garbage_collector(), contextlib.closing(shown):
            run = _Run(plans, bodies, client, settings, interrupt or Interrupt(), shown)
            records = await run.play()
    report = client_report(records, run.watch, run.wall_ns, open_files_limit, run.without_file, run.interrupted)
    return RunResult(records, report)


class _Run:
    """One run under way. An exchange lives from its due instant to its end; then its record alone is kept."""

    def __init__(
        self,
        plans: c.Sequence[PlannedRequest],
        bodies: Bodies,
        client: CompletionsClient,
        settings: PlayerSettings,
        interrupt: Interrupt,
        progress: Progress,
    ) -> None:
        self._plans = plans
        self._bodies = bodies
        self._client = client
        self._settings = settings
        self._interrupt = interrupt
        self._progress = progress
        self._slots = None if settings.max_in_flight is None else asyncio.Semaphore(settings.max_in_flight)
        self._open: dict[int, Exchange] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._faults: list[BaseException] = []
        self._records: dict[int, RequestRecord] = {}
        self._sent = 0
        self.watch = SelfWatch(settings.loop_lag_period_s)
        self.interrupted = False
        self.without_file = 0
        self.wall_ns = 0
        self.start_ns = time.monotonic_ns() + seconds_to_ns(settings.lead_in_s)
        self._due_ns = [plan.due_ns for plan in plans]
        self._last_due_at_ns = self.start_ns + (self._due_ns[-1] if plans else 0)

    async def play(self) -> tuple[RequestRecord, ...]:
        """Send, drain, cut what is left. Raises what a request's task raised: that is a fault of this program."""
        self.watch.start()
        showing = asyncio.create_task(self._show_progress())
        try:
            await _first_of(self._send_all(), self._interrupt.stop_sending.wait())
            self.interrupted = self._interrupt.stop_sending.is_set()
            await _first_of(self._drain(), self._interrupt.stop_hard.wait())
            self.interrupted = self._interrupt.stop_sending.is_set()
        finally:
            showing.cancel()
            self.watch.stop()
            self.wall_ns = time.monotonic_ns() - self.start_ns
            tasks = list(self._tasks.values())
            for exchange in self._open.values():
                exchange.cut(self._cut_reason(exchange))
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._progress.show(self._standing())
        for fault in self._faults:
            raise fault
        return tuple(self._records.get(index) or self._never_due(index) for index in range(len(self._plans)))

    async def _send_all(self) -> None:
        waker = open_waker()
        try:
            async for index in pace(self._due_ns, self.start_ns, waker, self._bodies.make_one):
                due_at_ns = self.start_ns + self._due_ns[index]
                self._open[index] = Exchange(self._bodies.take(), due_at_ns, self._settings.ignore_eos)
                self._tasks[index] = task = asyncio.create_task(self._one(self._open[index]))
                task.add_done_callback(functools.partial(self._ended, index))
                self._sent += 1
        finally:
            waker.close()

    def _ended(self, index: int, task: asyncio.Task[None]) -> None:
        del self._tasks[index]
        exchange = self._open.pop(index)
        if not task.cancelled() and (fault := task.exception()) is not None:
            self._faults.append(fault)
        self.without_file += exchange.without_file
        self._records[index] = exchange.record(self.start_ns)

    def _never_due(self, index: int) -> RequestRecord:
        """Of a request whose instant did not come before the run was interrupted."""
        plan = self._plans[index]
        exchange = Exchange(PreparedRequest(plan, b""), self.start_ns + plan.due_ns, self._settings.ignore_eos)
        exchange.cut(self._cut_reason(exchange))
        return exchange.record(self.start_ns)

    async def _one(self, exchange: Exchange) -> None:
        if self._slots is None:
            await self._client.send(exchange)
            return
        async with self._slots:
            if self._interrupt.stop_sending.is_set():
                return
            give_up_at_ns = instant_to_give_up_ns(exchange, self._settings.give_up_slo_multiple)
            if give_up_at_ns is not None and time.monotonic_ns() >= give_up_at_ns:
                exchange.end(Status.UNSENT, "its user would have given up before the client had a free slot")
                return
            await self._client.send(exchange)

    async def _drain(self) -> None:
        from_ns = time.monotonic_ns() if self.interrupted else self._last_due_at_ns
        left_s = (from_ns - time.monotonic_ns()) / NS_PER_S + self._settings.drain_s
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()), timeout=max(0.0, left_s))

    def _cut_reason(self, exchange: Exchange) -> str:
        if self.interrupted:
            return "the run was interrupted"
        if exchange.sent_at_ns is None:
            return f"waited for a free slot until {self._settings.drain_s:g} s after the last due instant"
        return f"not over {self._settings.drain_s:g} s after the last due instant"

    async def _show_progress(self) -> None:
        while True:
            await asyncio.sleep(PROGRESS_PERIOD_S)
            for _ in range(100):  # look for a quiet moment, but not for ever
                if self._sent >= len(self._plans):
                    break
                next_due_at_ns = self.start_ns + self._due_ns[self._sent]
                if next_due_at_ns - time.monotonic_ns() > QUIET_NEEDED_S * NS_PER_S:
                    break
                await asyncio.sleep(QUIET_NEEDED_S / 2)
            self._progress.show(self._standing())

    def _standing(self) -> Standing:
        left_s = (self._last_due_at_ns - time.monotonic_ns()) / NS_PER_S
        return Standing(len(self._plans), self._sent, self._sent - len(self._tasks), left_s)


async def _first_of(work: c.Coroutine[object, object, object], stop: c.Coroutine[object, object, object]) -> None:
    """Run `work` until it ends or `stop` does; what is left over is cancelled. Raises what `work` raised."""
    working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop)
    try:
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
    finally:
        working.cancel()
        stopping.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)


@contextlib.contextmanager
def _quiet_garbage_collector() -> c.Iterator[None]:
    """Keep what exists (bodies above all) out of collections, so that one in the timed window is short."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _ensure_open_files(plans: c.Sequence[PlannedRequest], settings: PlayerSettings) -> int:
    """The limit in force. Raises OpenFilesLimitError, with the time-out that would do."""
    connections = _connections(plans, settings)
    try:
        return ensure_open_files(connections)
    except OpenFilesLimitError as error:
        fitting_s = longest_lifetime_s([plan.due_ns for plan in plans], error.most)
        shorter = f"set load.request_timeout_s to {fitting_s} or less, " if fitting_s else ""
        raise OpenFilesLimitError(
            f"{error}: each may be open for load.request_timeout_s={settings.request_timeout_s:g}; {shorter}"
            "send at a lower rate, or raise the limit",
            error.most,
        ) from error


def _connections(plans: c.Sequence[PlannedRequest], settings: PlayerSettings) -> int:
    lifetime_ns = seconds_to_ns(settings.request_timeout_s)
    peak = peak_in_flight([plan.due_ns for plan in plans], lifetime_ns)
    return peak if settings.max_in_flight is None else min(peak, settings.max_in_flight)


def _check(plans: c.Sequence[PlannedRequest]) -> None:
    twice = [request_id for request_id, count in Counter(plan.request_id for plan in plans).items() if count > 1]
    if twice:
        raise ValueError(f"request id {twice[0]!r} is planned more than once")
    if plans and plans[0].due_ns < 0:
        raise ValueError(f"request {plans[0].request_id}: due instant is before the start of the run")
