"""From a policy's plan to one command: start, resume or pause; and decode steps when no prefill can run."""

import collections.abc as c
from dataclasses import dataclass
from functools import partial
from operator import attrgetter

from engine.core.batch import Task, TaskKind
from engine.core.commands import Pause, Resume, Start, Wake
from engine.core.ports import Batching, ItemState, OnPreempt, Plan, Policy, Predictor, Share, WorkItem
from engine.core.request import HandOver, Request
from engine.scheduling.decode_steps import KEY, DecodeSteps
from engine.scheduling.execution_pool import (
    AskedPause,
    ExecutionPool,
    LiveTask,
    decode_task,
    hand_over_task,
    prefill_task,
)
from engine.scheduling.kv_ledger import ActivationLedger, KVLedger
from engine.scheduling.request_book import LiveRequest, RequestBook, waiting_item
from engine.scheduling.settings import SchedulerSettings


class PlanError(ValueError):
    """A policy or a batching rule asks for what cannot be: a fault of its author."""


@dataclass(frozen=True, slots=True)
class _Imagined:
    """A view of what would be (`engine.core.ports.View`)."""

    items: c.Collection[WorkItem]
    executing: WorkItem | None = None


class Dispatch:
    """Carries plans out within memory.

    activation_bytes: bytes of a task at its worst boundary; must not shrink when a sequence gets more
    new or more cached tokens.
    short_of_memory: whether the last decision passed over work because it did not fit.
    """

    def __init__(
        self,
        policy: Policy,
        batching: Batching,
        predictor: Predictor,
        settings: SchedulerSettings,
        activation_bytes: c.Callable[[Task], int],
        book: RequestBook,
        pool: ExecutionPool,
    ) -> None:
        self._policy = policy
        self._batching = batching
        self._predictor = predictor
        self._settings = settings
        self._activation_bytes = activation_bytes
        self._book = book
        self._pool = pool
        self.kv = KVLedger(settings.kv_blocks, settings.block_tokens)
        self.activations = ActivationLedger(settings.activation_capacity_bytes)
        self.short_of_memory = False
        self.steps = DecodeSteps(book, predictor, settings.decode_reserve, settings.max_decode_batch)
        self._wake_at_ns: int | None = None

    def why_never(self, request: Request, context_tokens: int, now_ns: int) -> str:
        """Why the rest of the request can never run, however idle the engine: a sentence, or nothing."""
        limit, capacity = self._settings.max_context_tokens, self.activations.capacity_bytes
        if request.total_tokens > limit:
            asked = f"a prompt of {request.prompt_tokens} tokens and {request.max_tokens} to generate"
            return f"{asked} exceed the limit of {limit} tokens"
        blocks = self.kv.blocks_for(request)
        if blocks > self.kv.capacity_blocks:
            return f"the request needs {blocks} KV blocks; the pool has {self.kv.capacity_blocks}"
        if request.hand_over is not HandOver.RECEIVES:
            item = waiting_item(request, context_tokens, self._predictor)

            def fits_when_idle(shares: c.Sequence[Share]) -> bool:
                return self._activation_bytes(prefill_task(0, shares)) <= capacity

            if not self._batching.select((item,), fits_when_idle, self._predictor, now_ns):
                return f"the activations of its {item.new_tokens} tokens exceed the {capacity} bytes there are"
        if request.hand_over is HandOver.SENDS:
            return ""
        last = LiveRequest(request, blocks, 0, generated_tokens=request.max_tokens)
        if request.max_tokens > 1 and self._activation_bytes(decode_task(0, [last])) > capacity:
            return f"the activations of a decode step exceed the {capacity} bytes there are"
        return ""

    def show_decode_step(self, now_ns: int) -> None:
        """Where decode steps have deadlines, the next one is among the items once it is urgent."""
        self._book.items.drop(KEY)
        if self._settings.decode_order == "last" or self._executes_step:
            return
        step = self.steps.next(now_ns)
        if step is not None and step.urgent_at_ns <= now_ns:
            self._book.items.put(step.item)

    def wake(self, plan: Plan | None, now_ns: int) -> Wake | None:
        """An alarm for the instant a decode step becomes urgent, while a prefill executes that may be paused."""
        executing = self._pool.executing_prefill
        if self._settings.decode_order == "last" or executing is None or plan is None:
            return None
        step = self.steps.next(now_ns) if plan.preempt is not OnPreempt.NEVER else None
        if step is None or step.urgent_at_ns <= now_ns or step.urgent_at_ns == self._wake_at_ns:
            return None
        self._wake_at_ns = step.urgent_at_ns
        return Wake(step.urgent_at_ns)

    def woken(self, at_ns: int) -> bool:
        """Whether it is the alarm last asked for; others are out of date."""
        if self._wake_at_ns is None or at_ns < self._wake_at_ns:
            return False
        self._wake_at_ns = None
        return True

    @property
    def _executes_step(self) -> bool:
        executing = self._pool.executing
        return executing is not None and executing.task.kind is TaskKind.DECODE_STEP

    def carry_out(self, plan: Plan | None, now_ns: int) -> Pause | Resume | Start | None:
        """The one command of this decision. plan: None when there is no prefill work. No pause is outstanding."""
        self.short_of_memory = False
        if self._pool.executing is not None:
            may_stop = plan is not None and plan.preempt is not OnPreempt.NEVER and self._pool.executing_prefill
            return self._pause(plan, now_ns) if plan is not None and may_stop else None
        started = None if plan is None else self._run_prefill(plan.order, now_ns)
        return started or self._start_decode_step(now_ns)

    def send(self, live: LiveRequest, now_ns: int) -> Start:
        """A prefilled request's KV leaves."""
        return self._hand_over(TaskKind.KV_SEND, live, now_ns)

    def receive(self, now_ns: int) -> list[Start]:
        """Incoming requests whose KV may come now, in order of arrival: the first that finds no blocks ends it."""
        started = []
        for live in list(self._book.incoming.values()):
            if live.missing_blocks > self.kv.free_blocks:
                break
            self.kv.reserve(live.request.request_id, live.missing_blocks)
            live.missing_blocks = 0
            started.append(self._hand_over(TaskKind.KV_RECEIVE, live, now_ns))
        return started

    def _hand_over(self, kind: TaskKind, live: LiveRequest, now_ns: int) -> Start:
        task = hand_over_task(self._pool.next_task_id, kind, live)
        self.activations.reserve(task, 0)
        self._pool.hand_over(task, live, now_ns)
        return Start(task)

    def _pause(self, plan: Plan, now_ns: int) -> Pause | None:
        task = self._pool.executing_prefill
        assert task is not None
        task_id, spare_bytes = task.task.task_id, 0
        if plan.preempt is OnPreempt.RESTART:
            spare_bytes = self.activations.held_by(task_id)
        elif len(self._pool.preempted) >= self._settings.max_preempted:
            return None
        for place in self._runnable(plan.order, now_ns, spare_bytes):
            item = plan.order[place]
            if item.state is ItemState.EXECUTING:
                return None
            if plan.preempt is OnPreempt.RESTART and not self._leads_after_restart(item, task, now_ns):
                return None
            self._pool.pause = AskedPause(task_id, now_ns, plan.preempt)
            return Pause(task_id)
        return None

    def _leads_after_restart(self, item: WorkItem, task: LiveTask, now_ns: int) -> bool:
        """Whether the item would still stand before the members of the executing task once these begin anew.

        A batch stands elsewhere than its members do alone. Where a member would come first again, the restart
        would only repeat itself, for ever.
        """
        anew = {m.request.seq: waiting_item(m.request, 0, self._predictor) for m in task.members}
        others = [each for each in self._book.items.in_due_order if each.key != task.key]
        items = sorted([*others, *anew.values()], key=attrgetter("due_at_ns", "tie"))
        imagined = self._policy.plan(_Imagined(items), now_ns)
        first = next((each for each in imagined.order if each.key == item.key or each.key in anew), None)
        return first is not None and first.key == item.key

    def _run_prefill(self, order: c.Sequence[WorkItem], now_ns: int) -> Resume | Start | None:
        for place in self._runnable(order, now_ns, 0):
            item = order[place]
            if item.state is ItemState.DECODE:
                return self._start_decode_step(now_ns)
            if item.state is ItemState.PREEMPTED:
                task = self._pool.by_key(item.key)
                self._pool.resume(task, now_ns)
                return Resume(task.task.task_id)
            shares = self._batching.select(order[place:] if place else order, self._fits, self._predictor, now_ns)
            _check_shares(item, shares)
            members = [self._book.waiting[share.item.key] for share in shares]
            return self._start(prefill_task(self._pool.next_task_id, shares), members, now_ns)
        return None

    def _runnable(self, order: c.Sequence[WorkItem], now_ns: int, spare_bytes: int) -> c.Iterator[int]:
        """Places in the order whose item can run, each alone; what does not fit is passed over.

        spare_bytes: activation bytes that will be free beyond those that are.
        """
        waiting, free_blocks = self._book.waiting, self.kv.free_blocks
        fits = partial(self._fits, spare_bytes=spare_bytes)
        refused: WorkItem | None = None
        for place, item in enumerate(order):
            if item.state is ItemState.DECODE:
                if self._step_fits(spare_bytes):
                    yield place
                continue
            if item.state is not ItemState.WAITING:
                yield place
                continue
            live = waiting.get(item.key)
            if live is None:  # the plan rejects it
                continue
            if live.missing_blocks > free_blocks or (refused is not None and _at_least(item, refused)):
                self.short_of_memory = True
            elif self._batching.select((item,), fits, self._predictor, now_ns):
                yield place
            elif refused is None or item.new_tokens < refused.new_tokens:
                refused = item

    def _fits(self, shares: c.Sequence[Share], spare_bytes: int = 0) -> bool:
        waiting, free_blocks = self._book.waiting, self.kv.free_blocks
        for share in shares:
            free_blocks -= waiting[share.item.key].missing_blocks
            if free_blocks < 0:
                self.short_of_memory = True
                return False
        size = self._activation_bytes(prefill_task(self._pool.next_task_id, shares))
        if size > self.activations.free_bytes + spare_bytes:
            self.short_of_memory = True
            return False
        return True

    def _step_fits(self, spare_bytes: int) -> bool:
        """Whether a step of at least one request does."""
        task = decode_task(self._pool.next_task_id, self.steps.batch()[:1])
        fits = self._activation_bytes(task) <= self.activations.free_bytes + spare_bytes
        self.short_of_memory |= not fits
        return fits

    def _start_decode_step(self, now_ns: int) -> Start | None:
        if self._settings.decode_order == "last":
            most = self._settings.max_decode_batch
            batch = [live for live, _ in zip(self._book.decoding.values(), range(most), strict=False)]
        else:
            batch = self.steps.batch()
        while batch:
            task = decode_task(self._pool.next_task_id, batch)
            if self._activation_bytes(task) <= self.activations.free_bytes:
                return self._start(task, batch, now_ns)
            self.short_of_memory = True
            batch = batch[: len(batch) // 2]
        return None

    def _start(self, task: Task, members: c.Sequence[LiveRequest], now_ns: int) -> Start:
        for live in members:
            if live.missing_blocks:
                self.kv.reserve(live.request.request_id, live.missing_blocks)
                live.missing_blocks = 0
        self.activations.reserve(task, self._activation_bytes(task))
        self._pool.start(task, members, now_ns)
        return Start(task)


def _at_least(item: WorkItem, other: WorkItem) -> bool:
    return item.new_tokens >= other.new_tokens and item.context_tokens >= other.context_tokens


def _check_shares(head: WorkItem, shares: c.Sequence[Share]) -> None:
    if not shares or shares[0].item is not head:
        raise PlanError("a batch must begin with the item that leads the order")
    if len({share.item.key for share in shares}) < len(shares):
        raise PlanError("a batch takes an item twice")
    for share in shares:
        if share.item.state is not ItemState.WAITING or not 1 <= share.tokens <= share.item.new_tokens:
            raise PlanError(f"a batch cannot take {share.tokens} tokens of item {share.item.key}")
