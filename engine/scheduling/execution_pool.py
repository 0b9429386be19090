"""The execution pool as the scheduler knows it: one executing task, the preempted ones, the pause asked for.

Beside it: hand-overs of KV, which compute nothing.
"""

import collections.abc as c
from dataclasses import dataclass, field

from engine.core.batch import HAND_OVERS, Sequence, Task, TaskKind, Work
from engine.core.ports import ItemState, OnPreempt, Predictor, Share, WorkItem
from engine.scheduling.request_book import BookError, LiveRequest, RequestBook, Stand
from engine.scheduling.slack import BatchDeadline, deadline_member, remaining_ns

_STANDS = {ItemState.EXECUTING: Stand.EXECUTING, ItemState.PREEMPTED: Stand.PREEMPTED}


@dataclass(slots=True, eq=False)
class LiveTask:
    """A task that was started and is not over.

    sequences' requests: `everyone`; those whose client has not left: `members`, first one first.
    predicted_ns: of the whole task. executed_ns: as the executor last told.
    """

    task: Task
    everyone: tuple[LiveRequest, ...]
    members: list[LiveRequest]
    predicted_ns: int
    resumed_at_ns: int
    state: ItemState = ItemState.EXECUTING
    executed_ns: int = 0
    key: int = -1


@dataclass(frozen=True, slots=True)
class AskedPause:
    """The outstanding pause. then: what becomes of the task once it has stopped.

    for_work: more urgent work waits for it; False where all clients of the task have left.
    """

    task_id: int
    at_ns: int
    then: OnPreempt
    for_work: bool = True


@dataclass
class ExecutionPool:
    """Tasks by state. Keeps the book's items of prefill tasks up to date; a decode step or a hand-over has none."""

    book: RequestBook
    predictor: Predictor
    batch_deadline: BatchDeadline
    executing: LiveTask | None = None
    pause: AskedPause | None = None
    preempted: dict[int, LiveTask] = field(default_factory=dict)
    hand_overs: dict[int, LiveTask] = field(default_factory=dict)
    next_task_id: int = 0

    @property
    def executing_prefill(self) -> LiveTask | None:
        """What executes, unless it is a decode step."""
        live = self.executing
        return live if live is not None and live.task.kind is TaskKind.PREFILL else None

    @property
    def tasks(self) -> list[LiveTask]:
        """All of them."""
        executing = [] if self.executing is None else [self.executing]
        return [*executing, *self.preempted.values(), *self.hand_overs.values()]

    def find(self, task_id: int) -> LiveTask:
        """The live task of this id. Raises BookError when there is none: the executor broke its contract."""
        if self.executing is not None and self.executing.task.task_id == task_id:
            return self.executing
        found = self.preempted.get(task_id) or self.hand_overs.get(task_id)
        if found is None:
            raise BookError(f"the executor speaks of task {task_id}, which is not live")
        return found

    def holding(self, live: LiveRequest) -> LiveTask | None:
        """The task that has this request as a member."""
        return next((task for task in self.tasks if live in task.members), None)

    def by_key(self, key: int) -> LiveTask:
        """The preempted task behind an item."""
        return next(task for task in self.preempted.values() if task.key == key)

    def start(self, task: Task, members: c.Sequence[LiveRequest], now_ns: int) -> LiveTask:
        """Requests become a task that executes."""
        self._must_be_idle(task)
        self.next_task_id = task.task_id + 1
        prefill = task.kind is TaskKind.PREFILL
        predicted_ns = self.predictor.estimate_ns(Work.of(task)) if prefill else 0  # nothing is ordered by a step's
        live = LiveTask(task, tuple(members), list(members), predicted_ns, now_ns)
        self.executing = live
        if prefill:
            for member in members:
                self.book.move(member, Stand.EXECUTING)
            self._post(live, now_ns)
        return live

    def hand_over(self, task: Task, member: LiveRequest, now_ns: int) -> None:
        """A request's KV begins to come or to leave."""
        self.next_task_id = task.task_id + 1
        self.hand_overs[task.task_id] = LiveTask(task, (member,), [member], 0, now_ns)
        self.book.move(member, Stand.ON_ITS_WAY)

    def resume(self, live: LiveTask, now_ns: int) -> None:
        """A preempted task executes again."""
        self._must_be_idle(live.task)
        del self.preempted[live.task.task_id]
        live.resumed_at_ns = now_ns
        self.executing = live
        self._turn(live, ItemState.EXECUTING, now_ns)

    def stop(self, live: LiveTask, now_ns: int) -> None:
        """The executing task has stopped at a boundary and holds its place."""
        if live is not self.executing:
            raise BookError(f"task {live.task.task_id} cannot stop: it does not execute")
        self.executing = None
        self.preempted[live.task.task_id] = live
        self._turn(live, ItemState.PREEMPTED, now_ns)

    def end(self, live: LiveTask) -> None:
        """The task is over, one way or another; its requests are to be placed by the caller."""
        task_id = live.task.task_id
        if live is self.executing:
            self.executing = None
        else:
            del (self.hand_overs if task_id in self.hand_overs else self.preempted)[task_id]
        self.book.items.drop(live.key)

    def leave(self, member: LiveRequest, live: LiveTask, now_ns: int) -> None:
        """A member's client left: the deadline is made anew from those who stay. Without any, nothing is shown."""
        live.members.remove(member)
        self.book.move(member, Stand.LEAVING)
        if live.task.kind is TaskKind.PREFILL:
            self._post(live, now_ns)

    def refresh(self, now_ns: int) -> None:
        """Bring items up to this instant: the executing one went on, a batch's deadline may have become hopeless."""
        if self.executing_prefill is not None:
            self._post(self.executing_prefill, now_ns)
        for live in self.preempted.values():
            if len(live.members) > 1:
                item = self.book.items.get(live.key)
                if item is not None and item.due_at_ns - item.remaining_ns <= now_ns:
                    self._post(live, now_ns)

    def check(self) -> None:
        """Raise BookError when the pool and the book disagree."""
        if self.pause is not None and (self.executing is None or self.executing.task.task_id != self.pause.task_id):
            raise BookError("a pause is outstanding for a task that does not execute")
        for live in self.tasks:
            prefill = live.task.kind is TaskKind.PREFILL
            stand = _STANDS[live.state] if prefill else Stand.DECODING
            if live.task.kind in HAND_OVERS:
                stand = Stand.ON_ITS_WAY
            if any(member.stand is not stand for member in live.members):
                raise BookError(f"task {live.task.task_id} is {live.state}, its members are not")
            item = self.book.items.get(live.key)
            if prefill and live.members and (item is None or item.members != tuple(m.request for m in live.members)):
                raise BookError(f"task {live.task.task_id} is shown wrongly")
            if not live.members and prefill and self.pause is None:
                raise BookError(f"task {live.task.task_id} goes on for nobody")
        held = {member for live in self.tasks for member in live.everyone}
        for request in self.book.requests:
            in_task = (Stand.EXECUTING, Stand.PREEMPTED, Stand.LEAVING, Stand.ON_ITS_WAY)
            if request.stand in in_task and request not in held:
                raise BookError(f"{request.request.request_id} is {request.stand}, but in no task")
        shown = sum(item.state is not ItemState.DECODE for item in self.book.items.in_due_order)
        if shown != len(self.book.waiting) + sum(bool(t.members) for t in self.tasks if t.key >= 0):
            raise BookError("items without work behind them")

    def _must_be_idle(self, task: Task) -> None:
        if self.executing is not None:
            raise BookError(f"task {task.task_id} cannot run: task {self.executing.task.task_id} executes")

    def _turn(self, live: LiveTask, state: ItemState, now_ns: int) -> None:
        live.state = state
        for member in live.members:
            self.book.move(member, _STANDS[state])
        self._post(live, now_ns)

    def _post(self, live: LiveTask, now_ns: int) -> None:
        items = self.book.items
        if not live.members:
            items.drop(live.key)
            return
        key = live.members[0].request.seq
        if key != live.key:
            items.drop(live.key)
            live.key = key
        items.put(task_item(live, self.batch_deadline, now_ns))


def task_item(live: LiveTask, rule: BatchDeadline, now_ns: int) -> WorkItem:
    """A prefill task as a policy sees it at this instant."""
    ran_ns = max(0, now_ns - live.resumed_at_ns) if live.state is ItemState.EXECUTING else 0
    left_ns = remaining_ns(live.predicted_ns, live.executed_ns + ran_ns)
    members = tuple(member.request for member in live.members)
    ordering = deadline_member(members, rule, now_ns + left_ns)
    return WorkItem(
        key=live.key,
        state=live.state,
        members=members,
        arrived_at_ns=min(request.arrived_at_ns for request in members),
        due_at_ns=ordering.due_at_ns,
        has_slo=ordering.has_slo,
        remaining_ns=left_ns,
        new_tokens=live.task.new_tokens,
        context_tokens=sum(sequence.context_tokens for sequence in live.task.sequences),
    )


def prefill_task(task_id: int, shares: c.Sequence[Share]) -> Task:
    """The task that computes these shares."""
    return Task(
        task_id,
        TaskKind.PREFILL,
        tuple(
            Sequence(s.item.members[0].request_id, s.item.context_tokens, s.tokens, last=s.tokens == s.item.new_tokens)
            for s in shares
        ),
    )


def hand_over_task(task_id: int, kind: TaskKind, live: LiveRequest) -> Task:
    """The move of a prompt's KV."""
    return Task(task_id, kind, (Sequence(live.request.request_id, live.request.prompt_tokens, 0, last=False),))


def decode_task(task_id: int, batch: c.Sequence[LiveRequest]) -> Task:
    """One token more for each of these requests; the token before it is what they compute."""
    sequences = tuple(
        Sequence(live.request.request_id, live.request.prompt_tokens + live.generated_tokens - 1, 1) for live in batch
    )
    return Task(task_id, TaskKind.DECODE_STEP, sequences)
