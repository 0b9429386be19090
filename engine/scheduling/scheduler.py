"""The event-driven scheduler: handle(events, now_ns) -> commands.

It never asks for the time, never waits and draws no random number: the same events at the same instants give
the same commands, in the engine, in a simulation and in a replay of a decision log.
"""

import collections.abc as c

from engine.core.batch import Task
from engine.core.commands import Command
from engine.core.events import Event, event_order
from engine.core.ports import Batching, Plan, Policy, Predictor, WorkItem
from engine.core.record import EngineReport
from engine.scheduling.counters import Counters
from engine.scheduling.decode_steps import KEY
from engine.scheduling.dispatch import Dispatch, PlanError
from engine.scheduling.event_monitor import EventMonitor
from engine.scheduling.execution_pool import ExecutionPool
from engine.scheduling.kv_ledger import LedgerError
from engine.scheduling.predictors.guarded import GuardedPredictor
from engine.scheduling.request_book import HANDING_OVER, LiveCounts, RequestBook, Stand
from engine.scheduling.settings import SchedulerSettings

__all__ = ["Scheduler", "SchedulerSettings"]


class _View:
    """What a policy sees of the book and the pool (`engine.core.ports.View`)."""

    def __init__(self, book: RequestBook, pool: ExecutionPool) -> None:
        self._book = book
        self._pool = pool

    @property
    def items(self) -> c.Collection[WorkItem]:
        return self._book.items.in_due_order

    @property
    def executing(self) -> WorkItem | None:
        live = self._pool.executing_prefill
        return None if live is None else self._book.items.get(live.key)


class Scheduler:
    """Decides what executes.

    activation_bytes: what a task holds at its worst operator boundary, paid before it starts; must not
    shrink when a sequence gets more new or more cached tokens.
    """

    def __init__(
        self,
        policy: Policy,
        batching: Batching,
        predictor: Predictor,
        settings: SchedulerSettings,
        activation_bytes: c.Callable[[Task], int],
    ) -> None:
        self._policy = policy
        self._predictor = GuardedPredictor(predictor)
        self._settings = settings
        self._book = RequestBook(self._predictor)
        self._pool = ExecutionPool(self._book, self._predictor, settings.batch_deadline)
        self._dispatch = Dispatch(policy, batching, self._predictor, settings, activation_bytes, self._book, self._pool)
        self._view = _View(self._book, self._pool)
        self._monitor = EventMonitor(self._book, self._pool, self._dispatch, self._predictor)
        self._clamped_before = 0

    # What others see.

    @property
    def live(self) -> LiveCounts:
        """Live work by state."""
        return LiveCounts(
            waiting=len(self._book.waiting),
            executing=int(self._pool.executing_prefill is not None),
            preempted=len(self._pool.preempted),
            decoding=len(self._book.decoding),
            handing_over=sum(live.stand in HANDING_OVER for live in self._book.requests),
        )

    @property
    def kv_free_blocks(self) -> int:
        """KV blocks no request holds."""
        return self._dispatch.kv.free_blocks

    @property
    def activation_held_bytes(self) -> int:
        """Activation bytes of executing and preempted tasks."""
        return self._dispatch.activations.capacity_bytes - self._dispatch.activations.free_bytes

    def report(self) -> EngineReport:
        """Counters since the last reset."""
        return self._monitor.counters.report(self._predictor.clamped - self._clamped_before)

    def reset_report(self) -> None:
        """Count anew."""
        self._monitor.counters = Counters()
        self._clamped_before = self._predictor.clamped

    def add_scheduling_ns(self, spent_ns: int) -> None:
        """Told by the driver, which has a clock: what calls of `handle` took."""
        self._monitor.counters.scheduling_ns += spent_ns

    def check(self) -> None:
        """Raise AssertionError when an invariant is broken. For tests and for moments of leisure: O(live work)."""
        kv, activations = self._dispatch.kv, self._dispatch.activations
        for part in (self._book, self._pool, kv, activations):
            part.check()
        tasks = {live.task.task_id for live in self._pool.tasks}
        if tasks != activations.holders:
            raise LedgerError(f"tasks {tasks} live, but {set(activations.holders)} hold activation bytes")
        holders = {live.request.request_id for live in self._book.requests if live.missing_blocks != live.blocks}
        if holders != kv.holders:
            raise LedgerError(f"{holders ^ kv.holders}: the book and the KV ledger disagree")
        if len(self._pool.preempted) > self._settings.max_preempted:
            raise LedgerError(f"{len(self._pool.preempted)} tasks are preempted")

    # The one entry.

    def handle(self, events: c.Sequence[Event], now_ns: int) -> list[Command]:
        """Take in all events due at this instant, then decide once.

        Raises BookError when the executor breaks its contract (a task that is not live), PlanError when a
        policy or a batching rule does.
        """
        monitor = self._monitor
        monitor.commands = []
        for event in sorted(events, key=event_order):
            monitor.take(event, now_ns)
        if self._book.incoming:
            monitor.commands += self._dispatch.receive(now_ns)
        if (monitor.round_due or monitor.other_round_due) and self._pool.pause is None:
            self._decide(now_ns)
        return monitor.commands

    # Decisions.

    def _decide(self, now_ns: int) -> None:
        monitor = self._monitor
        if monitor.round_due:
            monitor.counters.decisions += 1
        else:
            monitor.counters.other_decisions += 1
        monitor.round_due = monitor.other_round_due = False
        monitor.counters.arrival_to_decision_ns.extend(max(0, now_ns - at_ns) for at_ns in monitor.undecided_at_ns)
        monitor.undecided_at_ns.clear()
        plan: Plan | None = None
        self._dispatch.show_decode_step(now_ns)
        if len(self._book.items):
            self._pool.refresh(now_ns)
            plan = self._policy.plan(self._view, now_ns)
            for request, reason in plan.reject:
                live = self._book.find(request.request_id)
                if live is None or live.stand is not Stand.WAITING:
                    raise PlanError(f"the policy rejects {request.request_id}, which does not wait")
                monitor.reject(request, reason)
                monitor.over(live)
        command = self._dispatch.carry_out(plan, now_ns)
        if command is not None:
            monitor.commands.append(command)
        self._book.items.drop(KEY)
        alarm = self._dispatch.wake(plan, now_ns)
        if alarm is not None:
            monitor.commands.append(alarm)
