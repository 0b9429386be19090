"""The event-driven scheduler: handle(events, now_ns) -> commands.

It never asks for the time, never waits and draws no random number: the same events at the same instants give
the same commands, in the engine, in a simulation and in a replay of a decision log.
"""

import collections.abc as c

from engine.core.batch import Task, TaskKind, Work
from engine.core.commands import Command, Discard, Fail, Pause, Reject, ReleaseKV
from engine.core.events import (
    Arrival,
    Cancelled,
    Completion,
    Event,
    Failed,
    KVReleased,
    Output,
    Preempted,
    event_order,
)
from engine.core.ports import Batching, ItemState, OnPreempt, Plan, Policy, Predictor, WorkItem
from engine.core.record import EngineReport
from engine.core.request import Request
from engine.scheduling.counters import Counters
from engine.scheduling.dispatch import Dispatch, PlanError
from engine.scheduling.execution_pool import AskedPause, ExecutionPool, LiveTask
from engine.scheduling.kv_ledger import LedgerError
from engine.scheduling.predictors.guarded import GuardedPredictor
from engine.scheduling.request_book import KV_ON_ITS_WAY_BACK, LiveCounts, LiveRequest, RequestBook, Stand
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
        self._counters = Counters()
        self._clamped_before = 0
        self._commands: list[Command] = []
        self._undecided_at_ns: list[int] = []  # arrivals that no decision has seen yet
        self._round_due = False
        self._other_round_due = False

    # What others see.

    @property
    def live(self) -> LiveCounts:
        """Live work by state."""
        return LiveCounts(
            waiting=len(self._book.waiting),
            executing=int(self._pool.executing_prefill is not None),
            preempted=len(self._pool.preempted),
            decoding=len(self._book.decoding),
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
        return self._counters.report(self._predictor.clamped - self._clamped_before)

    def reset_report(self) -> None:
        """Count anew."""
        self._counters = Counters()
        self._clamped_before = self._predictor.clamped

    def add_scheduling_ns(self, spent_ns: int) -> None:
        """Told by the driver, which has a clock: what calls of `handle` took."""
        self._counters.scheduling_ns += spent_ns

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
        self._commands = []
        for event in sorted(events, key=event_order):
            match event:
                case Completion():
                    self._complete(event, now_ns)
                case Preempted():
                    self._preempted(event, now_ns)
                case Failed():
                    self._failed(event)
                case Cancelled():
                    self._cancel(event, now_ns)
                case KVReleased():
                    self._kv_released(event)
                case Arrival():
                    self._arrive(event, now_ns)
        if (self._round_due or self._other_round_due) and self._pool.pause is None:
            self._decide(now_ns)
        return self._commands

    # Decisions.

    def _decide(self, now_ns: int) -> None:
        if self._round_due:
            self._counters.decisions += 1
        else:
            self._counters.other_decisions += 1
        self._round_due = self._other_round_due = False
        self._counters.arrival_to_decision_ns.extend(max(0, now_ns - at_ns) for at_ns in self._undecided_at_ns)
        self._undecided_at_ns.clear()
        plan: Plan | None = None
        if len(self._book.items):
            self._pool.refresh(now_ns)
            plan = self._policy.plan(self._view, now_ns)
            for request, reason in plan.reject:
                live = self._book.find(request.request_id)
                if live is None or live.stand is not Stand.WAITING:
                    raise PlanError(f"the policy rejects {request.request_id}, which does not wait")
                self._reject(request, reason)
                self._over(live)
        command = self._dispatch.carry_out(plan, now_ns)
        if command is not None:
            self._commands.append(command)

    # Events.

    def _arrive(self, event: Arrival, now_ns: int) -> None:
        request = event.request
        reason = self._book.conflict(request) or self._dispatch.why_never(request, 0, now_ns)
        if reason:
            self._reject(request, reason)
            return
        self._book.arrive(request, self._dispatch.kv.blocks_for(request))
        self._undecided_at_ns.append(event.at_ns)
        self._round_due = True

    def _complete(self, event: Completion, now_ns: int) -> None:
        live = self._pool.find(event.task_id)
        self._counters.executed_ns += event.executed_ns - live.executed_ns
        self._predictor.observe(Work.of(live.task), event.executed_ns)
        prefill = live.task.kind is TaskKind.PREFILL
        if prefill:
            self._counters.prefill_tokens += live.task.new_tokens
        else:
            self._counters.decode_tokens += live.task.new_tokens
        self._end(live, event.at_ns)
        self._round_due = True
        outputs = {output.request_id: output for output in event.outputs}
        for member, sequence in zip(live.everyone, live.task.sequences, strict=True):
            if member.stand is Stand.LEAVING:
                self._over(member)
            elif prefill and not sequence.last:
                self._wait_again(member, sequence.context_tokens + sequence.new_tokens, now_ns)
            else:
                self._token(member, outputs.get(sequence.request_id))

    def _token(self, live: LiveRequest, output: Output | None) -> None:
        live.generated_tokens += 1
        if live.generated_tokens >= live.request.max_tokens or (output is not None and output.finish_reason):
            self._counters.completed_requests += 1
            self._over(live)
        elif live.stand is Stand.DECODING:
            self._book.to_the_end_of_decoding(live)
        else:
            live.context_tokens = live.request.prompt_tokens
            self._book.move(live, Stand.DECODING)

    def _preempted(self, event: Preempted, now_ns: int) -> None:
        live = self._pool.find(event.task_id)
        self._counters.executed_ns += event.executed_ns - live.executed_ns
        live.executed_ns = event.executed_ns
        asked = self._note_stop(event.task_id, event.at_ns)
        self._other_round_due = True
        self._pool.stop(live, now_ns)
        if live.members:
            self._counters.preemptions += 1
        if not live.members or (asked is not None and asked.then is OnPreempt.RESTART):
            self._discard(live, now_ns)

    def _discard(self, live: LiveTask, now_ns: int) -> None:
        """A preempted task is thrown away; members whose clients stay begin anew."""
        self._commands.append(Discard(live.task.task_id))
        self._end(live, now_ns)
        for member in live.everyone:
            if member.stand is Stand.LEAVING:
                self._over(member)
            else:
                self._commands.append(ReleaseKV(member.request.request_id))
                member.missing_blocks = KV_ON_ITS_WAY_BACK
                self._wait_again(member, 0, now_ns)

    def _failed(self, event: Failed) -> None:
        live = self._pool.find(event.task_id)
        if live.state is ItemState.EXECUTING:
            self._counters.executed_ns += max(0, event.at_ns - live.resumed_at_ns)
        self._end(live, event.at_ns)
        self._other_round_due = True
        for member in live.everyone:
            if member.stand is not Stand.LEAVING:
                self._counters.failed_requests += 1
                self._commands.append(Fail(member.request.request_id, event.reason))
            self._over(member)

    def _cancel(self, event: Cancelled, now_ns: int) -> None:
        live = self._book.find(event.request_id)
        if live is None or live.ended:
            return
        self._counters.cancelled_requests += 1
        task = self._pool.holding(live)
        if task is None:
            self._over(live)
            return
        self._pool.leave(live, task, now_ns)
        if task.members or task.task.kind is TaskKind.DECODE_STEP:
            return
        if task.state is ItemState.PREEMPTED:
            self._discard(task, now_ns)
            self._other_round_due = True
        elif self._pool.pause is None:
            self._pool.pause = AskedPause(task.task.task_id, now_ns, OnPreempt.PAUSE, for_work=False)
            self._commands.append(Pause(task.task.task_id))

    def _kv_released(self, event: KVReleased) -> None:
        live = self._book.find(event.request_id)
        if live is None or (live.stand is not Stand.RELEASING and live.missing_blocks != KV_ON_ITS_WAY_BACK):
            return
        self._dispatch.kv.release(event.request_id)
        live.missing_blocks = live.blocks
        if live.stand is Stand.RELEASING:
            self._book.forget(live)
        self._other_round_due |= self._dispatch.short_of_memory

    # What events have in common.

    def _wait_again(self, live: LiveRequest, context_tokens: int, now_ns: int) -> None:
        reason = self._dispatch.why_never(live.request, context_tokens, now_ns)
        if reason:
            self._reject(live.request, reason)
            self._over(live)
        else:
            self._book.wait_again(live, context_tokens)

    def _reject(self, request: Request, reason: str) -> None:
        self._counters.rejected += 1
        self._commands.append(Reject(request.request_id, reason))

    def _end(self, live: LiveTask, at_ns: int) -> None:
        self._note_stop(live.task.task_id, at_ns)
        self._pool.end(live)
        self._dispatch.activations.release(live.task.task_id)

    def _note_stop(self, task_id: int, at_ns: int) -> AskedPause | None:
        asked = self._pool.pause
        if asked is None or asked.task_id != task_id:
            return None
        self._pool.pause = None
        if asked.for_work:
            self._counters.blocking_ns.append(max(0, at_ns - asked.at_ns))
        return asked

    def _over(self, live: LiveRequest) -> None:
        """Nothing more is computed for the request, and no task writes its KV: the blocks are asked back."""
        self._book.move(live, Stand.RELEASING)
        if live.missing_blocks == 0:
            self._commands.append(ReleaseKV(live.request.request_id))
        elif live.missing_blocks == live.blocks:
            self._book.forget(live)
