"""One simulated run: the engine's own scheduler and driver in virtual time."""

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import itemgetter

from engine.core.clock import NS_PER_S, seconds_to_ns
from engine.core.record import EngineReport, RequestRecord
from engine.scheduling.driver import DecisionSink, Driver
from engine.scheduling.scheduler import Scheduler
from engine.simulation.clients import Clients, SimulatedRequest
from engine.simulation.device import DeviceModel
from engine.simulation.event_heap import EventHeap
from engine.simulation.event_source import SimulatedEvents
from engine.simulation.executor import SimulatedExecutor
from engine.simulation.settings import SimulationSettings
from engine.simulation.virtual_clock import VirtualClock

__all__ = ["SimulatedRequest", "SimulationResult", "simulate"]


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """records: one of each due request, in order of due instants; empty where `on_record` got them.

    report: the scheduler's own counters. `scheduling_ns` is rounds x `round_s`. Rounds of a poll at which nothing was
        to be decided, and those before operators, count among `other_decisions`.
    ended_at_ns: when the last thing happened. events: how many the scheduler was told of.
    """

    records: tuple[RequestRecord, ...]
    report: EngineReport
    ended_at_ns: int
    events: int


def simulate(
    requests: Iterable[SimulatedRequest],
    scheduler: Scheduler,
    device: DeviceModel,
    settings: SimulationSettings,
    *,
    give_up_slo_multiple: float | None = None,
    drain_ns: int | None = None,
    log: DecisionSink | None = None,
    on_record: Callable[[RequestRecord], None] | None = None,
) -> SimulationResult:
    """Play requests against a fresh scheduler. Same arguments, same result.

    requests: in order of `due_ns`; taken lazily.
    give_up_slo_multiple: a client without a token leaves this multiple of its TTFT SLO after its due instant.
    drain_ns: the run ends this long after the last due instant, whatever is unfinished; None = when all is over.
    on_record: gets each record as its request ends; none is kept then, so that memory grows with live requests only.
    Raises ValueError for requests out of order or an id used twice at a time, and what the device model raises.
    """
    clock, heap = VirtualClock(), EventHeap()
    executor = SimulatedExecutor(device, settings, clock, heap)
    kept: list[tuple[int, RequestRecord]] = []

    def ended(place: int, record: RequestRecord) -> None:
        if on_record is None:
            kept.append((place, record))
        else:
            on_record(record)

    clients = Clients(
        requests,
        executor,
        clock,
        heap,
        arrival_delay_ns=seconds_to_ns(settings.arrival_delay_s),
        reply_delay_ns=0 if settings.rounds == "operator" else seconds_to_ns(settings.round_s),
        give_up_slo_multiple=give_up_slo_multiple,
        on_end=ended,
    )
    source = SimulatedEvents(clients, executor, settings, clock, heap, drain_ns)
    driver = Driver(scheduler, executor, source, clock, clients, log)
    events = 0
    while happened := source.wait():
        events += len(happened)
        clients.leave(happened)
        driver.step(happened)
    clients.cut(_cut_reason(source, drain_ns))
    kept.sort(key=itemgetter(0))
    report = _charged(scheduler.report(), settings, executor, clock.now_ns())
    return SimulationResult(tuple(record for _, record in kept), report, clock.now_ns(), events)


def _cut_reason(source: SimulatedEvents, drain_ns: int | None) -> str:
    if source.cut and drain_ns is not None:
        return f"not over {drain_ns / NS_PER_S:g} s after the last due instant"
    return "the engine fell idle before the request was over"


def _charged(
    report: EngineReport,
    settings: SimulationSettings,
    executor: SimulatedExecutor,
    ended_at_ns: int,
) -> EngineReport:
    """The report with the rounds that the scheduler itself does not see, and the time of all."""
    decided = report.decisions + report.other_decisions
    rounds = decided
    if settings.rounds == "poll":
        rounds = max(decided, ended_at_ns // seconds_to_ns(settings.poll_s) + 1)
    elif settings.rounds == "operator":
        rounds = max(decided, executor.operator_rounds)
    return dataclasses.replace(
        report,
        other_decisions=rounds - report.decisions,
        scheduling_ns=seconds_to_ns(rounds * settings.round_s),
    )
