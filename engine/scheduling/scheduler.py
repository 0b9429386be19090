"""The event-driven scheduler: handle(events, now_ns) -> commands.

It never asks for the time, never waits and draws no random number: the same events at the same instants give
the same commands, in the engine, in a simulation and in a replay of a decision log.
"""

import collections.abc as c
from dataclasses import dataclass

from engine.core.batch import Task, Work
from engine.core.commands import Command, Discard, Fail, Pause, Reject, ReleaseKV, Resume, Start
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
from engine.core.ports import Batching, ItemState, OnPreempt, Plan, Policy, Predictor, Share, WorkItem
from engine.core.record import EngineReport
from engine.core.request import Request
from engine.scheduling.counters import Counters
from engine.scheduling.kv_ledger import ActivationLedger, KVLedger, LedgerError
from engine.scheduling.predictors.guarded import GuardedPredictor
from engine.scheduling.request_book import (
    BatchDeadline,
    BookError,
    LiveCounts,
    LivePrefill,
    LiveRequest,
    RequestBook,
    Stand,
    decode_task,
    prefill_task,
)


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """Limits the scheduler keeps to. max_context_tokens bounds prompt and output of one request together."""

    kv_blocks: int
    block_tokens: int
    activation_capacity_bytes: int
    max_context_tokens: int
    max_preempted: int = 64
    max_decode_batch: int = 256
    batch_deadline: BatchDeadline = "earliest_live"


@dataclass(slots=True)
class _Asked:
    """The outstanding pause. for_work: asked for more urgent work, not because the clients left."""

    task_id: int
    at_ns: int
    for_work: bool
    then: OnPreempt


class Scheduler:
    """Decides what executes.

    activation_bytes: what a task holds at its worst operator boundary, paid before it starts.
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
        self._batching = batching
        self._predictor = GuardedPredictor(predictor)
        self._settings = settings
        self._activation_bytes = activation_bytes
        self._book = RequestBook(self._predictor, settings.batch_deadline)
        self._kv = KVLedger(settings.kv_blocks, settings.block_tokens)
        self._activations = ActivationLedger(settings.activation_capacity_bytes)
        self._counters = Counters()
        self._asked: _Asked | None = None
        self._decode_step: tuple[Task, list[LiveRequest]] | None = None
        self._releasing: set[str] = set()
        self._next_task_id = 0
        self._commands: list[Command] = []

    # What others see.

    @property
    def live(self) -> LiveCounts:
        """Live work by stand."""
        return self._book.counts()

    @property
    def kv_free_blocks(self) -> int:
        """KV blocks no request holds."""
        return self._kv.free_blocks

    @property
    def activation_held_bytes(self) -> int:
        """Activation bytes of executing and preempted tasks."""
        return self._settings.activation_capacity_bytes - self._activations.free_bytes

    def report(self) -> EngineReport:
        """Counters since the last reset."""
        return self._counters.report()

    def reset_report(self) -> None:
        """Count anew."""
        self._counters = Counters()

    def add_scheduling_ns(self, spent_ns: int) -> None:
        """Told by the driver, which has a clock: what calls of `handle` took."""
        self._counters.scheduling_ns += spent_ns

    def check(self) -> None:
        """Raise AssertionError when an invariant is broken."""
        self._book.check()
        self._kv.check()
        self._activations.check()
        tasks = {p.task.task_id for p in self._prefills()}
        if self._decode_step is not None:
            tasks.add(self._decode_step[0].task_id)
            if self._book.executing is not None:
                raise BookError("a decode step and a prefill execute at once")
        if tasks != self._activations.holders:
            raise LedgerError(f"tasks {tasks} live, but {set(self._activations.holders)} hold activation bytes")
        if self._asked is not None and (
            self._book.executing_prefill is None or self._book.executing_prefill.task.task_id != self._asked.task_id
        ):
            raise BookError("a pause is outstanding for a task that does not execute")

    # The one entry.

    def handle(self, events: c.Sequence[Event], now_ns: int) -> list[Command]:
        """Take in all events due at this instant, then decide once.

        Raises BookError when the executor or the event monitor breaks its contract (an unknown task, an id twice).
        """
        self._commands = []
        rounds = 0
        others = 0
        for event in sorted(events, key=event_order):
            match event:
                case Completion():
                    rounds += 1
                    self._complete(event)
                case Preempted():
                    self._preempted(event, now_ns)
                case Failed():
                    others += 1
                    self._failed(event)
                case Cancelled():
                    others += 1
                    self._cancel(event, now_ns)
                case KVReleased():
                    others += 1
                    self._kv.release(event.request_id)
                    self._releasing.discard(event.request_id)
                case Arrival():
                    rounds += 1
                    self._arrive(event, now_ns)
        if rounds:
            self._counters.decisions += 1
        elif others:
            self._counters.other_decisions += 1
        self._decide(now_ns)
        return self._commands

    # Events.

    def _arrive(self, event: Arrival, now_ns: int) -> None:
        request = event.request
        if request.request_id in self._releasing:
            raise BookError(f"request id {request.request_id!r} is still being released; ids must be unique")
        self._counters.arrival_to_decision_ns.append(max(0, now_ns - event.at_ns))
        reason = self._never_fits(request)
        if reason:
            self._counters.rejected += 1
            self._commands.append(Reject(request.request_id, reason))
            return
        self._book.arrive(request)

    def _never_fits(self, request: Request) -> str:
        if request.total_tokens > self._settings.max_context_tokens:
            return (
                f"prompt of {request.prompt_tokens} tokens and {request.max_tokens} to generate exceed"
                f" the limit of {self._settings.max_context_tokens} tokens"
            )
        blocks = self._kv.blocks_for(request)
        if blocks > self._kv.capacity_blocks:
            return f"the request needs {blocks} KV blocks; the pool has {self._kv.capacity_blocks}"
        return ""

    def _complete(self, event: Completion) -> None:
        if self._decode_step is not None and self._decode_step[0].task_id == event.task_id:
            self._complete_decode(event)
            return
        prefill = self._executing(event.task_id)
        self._note_stop(event.at_ns)
        self._counters.executed_ns += event.executed_ns - prefill.executed_ns
        self._counters.prefill_tokens += prefill.task.new_tokens
        self._predictor.observe(Work.of(prefill.task), event.executed_ns)
        outputs = {output.request_id: output for output in event.outputs}
        self._activations.release(event.task_id)
        for live, sequence in zip(self._book.end(prefill), prefill.task.sequences, strict=True):
            done = sequence.context_tokens + sequence.new_tokens
            if live.cancelled:
                self._gone(live)
            elif sequence.last:
                self._token(live, outputs.get(sequence.request_id))
            else:
                self._book.wait_again(live, done)

    def _complete_decode(self, event: Completion) -> None:
        assert self._decode_step is not None
        task, batch = self._decode_step
        self._decode_step = None
        self._activations.release(task.task_id)
        self._counters.executed_ns += event.executed_ns
        self._counters.decode_tokens += task.new_tokens
        self._predictor.observe(Work.of(task), event.executed_ns)
        outputs = {output.request_id: output for output in event.outputs}
        for live in batch:
            if live.cancelled:
                self._gone(live)
            else:
                self._token(live, outputs.get(live.request.request_id))

    def _token(self, live: LiveRequest, output: Output | None) -> None:
        live.generated_tokens += 1
        over = live.generated_tokens >= live.request.max_tokens or (output is not None and output.finish_reason)
        if over:
            self._counters.completed_requests += 1
            self._gone(live)
        elif live.stand is not Stand.DECODING:
            self._book.decode(live)

    def _preempted(self, event: Preempted, now_ns: int) -> None:
        prefill = self._executing(event.task_id)
        asked = self._note_stop(event.at_ns)
        self._counters.executed_ns += event.executed_ns - prefill.executed_ns
        self._book.preempt(event.executed_ns, now_ns)
        if all(live.cancelled for live in prefill.members):
            self._discard(prefill)
        elif asked is not None and asked.for_work:
            self._counters.preemptions += 1
            if asked.then is OnPreempt.RESTART:
                self._discard(prefill, restart=True)

    def _discard(self, prefill: LivePrefill, restart: bool = False) -> None:
        self._commands.append(Discard(prefill.task.task_id))
        self._activations.release(prefill.task.task_id)
        for live in self._book.end(prefill):
            if restart and not live.cancelled:
                self._book.wait_again(live, 0)
            else:
                self._gone(live)

    def _failed(self, event: Failed) -> None:
        self._activations.release(event.task_id)
        if self._decode_step is not None and self._decode_step[0].task_id == event.task_id:
            members = self._decode_step[1]
            self._decode_step = None
        else:
            prefill = self._executing(event.task_id)
            self._note_stop(event.at_ns)
            members = self._book.end(prefill)
        for live in members:
            if not live.cancelled:
                self._counters.failed_requests += 1
                self._commands.append(Fail(live.request.request_id, event.reason))
            self._gone(live)

    def _cancel(self, event: Cancelled, now_ns: int) -> None:
        live = self._book.find(event.request_id)
        if live is None or live.cancelled:
            return
        self._counters.cancelled_requests += 1
        if live.stand is Stand.IN_PREFILL:
            prefill = self._book.leave_batch(live, now_ns)
            if any(not member.cancelled for member in prefill.members):
                return
            if prefill.state is ItemState.PREEMPTED:
                self._discard(prefill)
            elif self._asked is None:
                self._ask(prefill, now_ns, for_work=False, then=OnPreempt.PAUSE)
        elif self._decode_step is not None and live in self._decode_step[1]:
            live.cancelled = True
        else:
            self._gone(live)

    def _gone(self, live: LiveRequest) -> None:
        """Off the book; its KV is asked back."""
        self._book.remove(live)
        request_id = live.request.request_id
        if self._kv.holds(request_id):
            self._releasing.add(request_id)
            self._commands.append(ReleaseKV(request_id))

    def _note_stop(self, at_ns: int) -> _Asked | None:
        asked, self._asked = self._asked, None
        if asked is not None and asked.for_work:
            self._counters.blocking_ns.append(max(0, at_ns - asked.at_ns))
        return asked

    def _executing(self, task_id: int) -> LivePrefill:
        prefill = self._book.executing_prefill
        if prefill is None or prefill.task.task_id != task_id:
            raise BookError(f"the executor speaks of task {task_id}, which does not execute")
        return prefill

    def _prefills(self) -> c.Iterator[LivePrefill]:
        for item in self._book.items:
            if item.state is not ItemState.WAITING:
                yield self._book.prefill_of(item)

    # Decisions.

    def _decide(self, now_ns: int) -> None:
        if self._asked is not None:
            return
        if self._book.items:
            self._book.refresh(now_ns)
            plan = self._policy.plan(self._book, now_ns)
            for request, reason in plan.reject:
                self._refuse(request, reason)
            if self._decode_step is not None:
                return
            if self._book.executing_prefill is not None:
                self._consider_pause(plan, now_ns)
                return
            if self._dispatch(plan, now_ns):
                return
        if self._decode_step is None:
            self._dispatch_decode()

    def _refuse(self, request: Request, reason: str) -> None:
        live = self._book.find(request.request_id)
        if live is None or live.stand is not Stand.WAITING:
            raise BookError(f"the policy rejects {request.request_id}, which does not wait")
        self._counters.rejected += 1
        self._commands.append(Reject(request.request_id, reason))
        self._gone(live)

    def _consider_pause(self, plan: Plan, now_ns: int) -> None:
        prefill = self._book.executing_prefill
        assert prefill is not None
        if plan.preempt is OnPreempt.NEVER or self._book.preempted >= self._settings.max_preempted:
            return
        for place, item in enumerate(plan.order):
            if item.state is ItemState.EXECUTING:
                return
            if item.state is ItemState.PREEMPTED or self._selected(plan.order, place, now_ns):
                self._ask(prefill, now_ns, for_work=True, then=plan.preempt)
                return

    def _dispatch(self, plan: Plan, now_ns: int) -> bool:
        for place, item in enumerate(plan.order):
            if item.state is ItemState.PREEMPTED:
                prefill = self._book.prefill_of(item)
                self._book.resume(prefill, now_ns)
                self._commands.append(Resume(prefill.task.task_id))
                return True
            shares = self._selected(plan.order, place, now_ns)
            if shares:
                self._start(prefill_task(self._next_task_id, shares), shares, now_ns)
                return True
        return False

    def _selected(self, order: c.Sequence[WorkItem], place: int, now_ns: int) -> c.Sequence[Share]:
        """What would start if the item at `place` led; empty when it is gone or does not fit."""
        head = order[place]
        live = self._book.find(head.members[0].request_id)
        if live is None or live.stand is not Stand.WAITING:
            return ()
        if self._kv.missing_blocks(head.members[0]) > self._kv.free_blocks:
            return ()
        return self._batching.select(order[place:] if place else order, self._fits, self._predictor, now_ns)

    def _fits(self, shares: c.Sequence[Share]) -> bool:
        blocks = sum(self._kv.missing_blocks(share.item.members[0]) for share in shares)
        if blocks > self._kv.free_blocks:
            return False
        return self._activation_bytes(prefill_task(self._next_task_id, shares)) <= self._activations.free_bytes

    def _start(self, task: Task, shares: c.Sequence[Share], now_ns: int) -> None:
        self._next_task_id += 1
        for share in shares:
            self._kv.reserve(share.item.members[0])
        self._activations.reserve(task, self._activation_bytes(task))
        self._book.start(task, shares, now_ns)
        self._commands.append(Start(task))

    def _ask(self, prefill: LivePrefill, now_ns: int, for_work: bool, then: OnPreempt) -> None:
        self._asked = _Asked(prefill.task.task_id, now_ns, for_work, then)
        self._commands.append(Pause(prefill.task.task_id))

    def _dispatch_decode(self) -> None:
        batch = [live for live, _ in zip(self._book.decoding, range(self._settings.max_decode_batch), strict=False)]
        while batch:
            task = decode_task(self._next_task_id, batch)
            size = self._activation_bytes(task)
            if size <= self._activations.free_bytes:
                self._next_task_id += 1
                self._activations.reserve(task, size)
                self._decode_step = (task, batch)
                self._commands.append(Start(task))
                return
            batch = batch[: len(batch) // 2]
