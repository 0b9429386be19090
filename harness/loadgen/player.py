"""Plays a schedule of requests against a server, open loop, and returns a record of each."""

import asyncio
import collections.abc as c
import contextlib
import gc
import time
from collections import Counter
from dataclasses import dataclass

from engine.core.clock import NS_PER_S, seconds_to_ns
from engine.core.record import ClientReport, RequestRecord, Status
from engine.core.trace import PlannedRequest
from harness.loadgen.client import CompletionsClient, Exchange, instant_to_give_up_ns
from harness.loadgen.client_report import SelfWatch, client_report
from harness.loadgen.interrupt import Interrupt
from harness.loadgen.open_files import ensure_open_files
from harness.loadgen.pacing import pace, peak_in_flight
from harness.loadgen.progress import QUIET_NEEDED_S, Progress, Standing, open_progress
from harness.loadgen.request_body import PreparedRequest, prepare
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

    Bodies are serialised and open files ensured before the clock starts.
    interrupt: lets a user stop the run; the records are returned all the same.
    progress: in place of what `settings.progress` names.
    Raises OpenFilesLimitError before the start; ValueError for ids used twice or a due instant below 0.
    """
    plans = sorted(requests, key=lambda plan: plan.due_ns)
    _check(plans)
    open_files_limit = ensure_open_files(_connections(plans, settings))
    prepared = [prepare(plan, target, settings) for plan in plans]
    shown = open_progress(settings.progress) if progress is None else progress
    async with CompletionsClient(target, settings) as client:
        with _quiet_garbage_collector(), contextlib.closing(shown):
            run = _Run(prepared, client, settings, interrupt or Interrupt(), shown)
            await run.play()
    records = tuple(exchange.record(run.start_ns) for exchange in run.exchanges)
    without_file = sum(exchange.without_file for exchange in run.exchanges)
    report = client_report(records, run.watch, run.wall_ns, open_files_limit, without_file, run.interrupted)
    return RunResult(records, report)


class _Run:
    """One run under way."""

    def __init__(
        self,
        prepared: c.Sequence[PreparedRequest],
        client: CompletionsClient,
        settings: PlayerSettings,
        interrupt: Interrupt,
        progress: Progress,
    ) -> None:
        self._client = client
        self._settings = settings
        self._interrupt = interrupt
        self._progress = progress
        self._slots = None if settings.max_in_flight is None else asyncio.Semaphore(settings.max_in_flight)
        self._tasks: list[asyncio.Task[None]] = []
        self.watch = SelfWatch(settings.loop_lag_period_s)
        self.interrupted = False
        self.wall_ns = 0
        self.start_ns = time.monotonic_ns() + seconds_to_ns(settings.lead_in_s)
        self.exchanges = [Exchange(one, self.start_ns + one.plan.due_ns, settings.ignore_eos) for one in prepared]

    async def play(self) -> None:
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
            for exchange in self.exchanges:
                exchange.cut(self._cut_reason(exchange))
            for task in self._tasks:
                task.cancel()
            outcomes = await asyncio.gather(*self._tasks, return_exceptions=True)
            self._progress.show(self._standing())
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome

    async def _send_all(self) -> None:
        waker = open_waker()
        try:
            async for index in pace([one.prepared.plan.due_ns for one in self.exchanges], self.start_ns, waker):
                self._tasks.append(asyncio.create_task(self._one(self.exchanges[index])))
        finally:
            waker.close()

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
        last_due_ns = self.exchanges[-1].due_at_ns if self.exchanges else self.start_ns
        from_ns = time.monotonic_ns() if self.interrupted else last_due_ns
        left_s = (from_ns - time.monotonic_ns()) / NS_PER_S + self._settings.drain_s
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=max(0.0, left_s))

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
                sent = len(self._tasks)
                if sent >= len(self.exchanges):
                    break
                if self.exchanges[sent].due_at_ns - time.monotonic_ns() > QUIET_NEEDED_S * NS_PER_S:
                    break
                await asyncio.sleep(QUIET_NEEDED_S / 2)
            self._progress.show(self._standing())

    def _standing(self) -> Standing:
        last_due_ns = self.exchanges[-1].due_at_ns if self.exchanges else self.start_ns
        ended = sum(task.done() for task in self._tasks)
        left_s = (last_due_ns - time.monotonic_ns()) / NS_PER_S
        return Standing(len(self.exchanges), len(self._tasks), ended, left_s)


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
