"""How the load generator itself fared: loop lag, CPU share, sender lag. The verdict judges it."""

import asyncio
import collections.abc as c
import resource
import time
from dataclasses import dataclass, field

from engine.core.clock import NS_PER_S
from engine.core.record import ClientReport, RequestRecord
from harness.loadgen.pacing import rate_rps


def quantile(values: c.Collection[int], share: float) -> int:
    """Smallest value with at least `share` of all at or below it; 0 for none."""
    if not values:
        return 0
    ordered = sorted(values)
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]


def cpu_seconds() -> float:
    """User and system time of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


@dataclass(slots=True)
class SelfWatch:
    """Samples the event loop and the CPU of this process from `start` to `stop`.

    A loop that is busy cannot read replies either, so that its lag is in every TTFT.
    """

    period_s: float
    lags_ns: list[int] = field(default_factory=list)
    cpu_share: float = 0.0
    _task: asyncio.Task[None] | None = None
    _cpu_s: float = 0.0
    _started_at_ns: int = 0

    def start(self) -> None:
        """Begin to sample; call it on the running loop."""
        self._started_at_ns, self._cpu_s = time.monotonic_ns(), cpu_seconds()
        self._task = asyncio.create_task(self._sample())

    def stop(self) -> None:
        """End sampling and settle `cpu_share`."""
        if self._task is not None:
            self._task.cancel()
        wall_s = (time.monotonic_ns() - self._started_at_ns) / NS_PER_S
        self.cpu_share = (cpu_seconds() - self._cpu_s) / wall_s if wall_s > 0 else 0.0

    async def _sample(self) -> None:
        period_ns = round(self.period_s * NS_PER_S)
        while True:
            wanted_ns = time.monotonic_ns() + period_ns
            await asyncio.sleep(self.period_s)
            self.lags_ns.append(max(0, time.monotonic_ns() - wanted_ns))


def client_report(
    records: c.Sequence[RequestRecord],
    watch: SelfWatch,
    wall_ns: int,
    open_files_limit: int,
    open_files_failures: int,
    interrupted: bool,
) -> ClientReport:
    """Sum up one run. records: all due requests, in order of due instants."""
    sent = sorted(record.sent_at_ns for record in records if record.sent_at_ns is not None)
    lags = [record.sent_at_ns - record.due_at_ns for record in records if record.sent_at_ns is not None]
    return ClientReport(
        requests_due=len(records),
        requests_sent=len(sent),
        wall_ns=wall_ns,
        asked_rps=rate_rps([record.due_at_ns for record in records]),
        sent_rps=rate_rps(sent),
        sender_lag_p50_ns=quantile(lags, 0.5),
        sender_lag_p99_ns=quantile(lags, 0.99),
        sender_lag_max_ns=max(lags, default=0),
        loop_lag_p99_ns=quantile(watch.lags_ns, 0.99),
        loop_lag_max_ns=max(watch.lags_ns, default=0),
        cpu_share=watch.cpu_share,
        open_files_limit=open_files_limit,
        open_files_failures=open_files_failures,
        interrupted=interrupted,
    )
