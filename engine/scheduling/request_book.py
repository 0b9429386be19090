"""Where every live request and task stands, and the legal moves between the stands.

    waiting -> executing -> (preempted -> executing)* -> decoding -> gone
                        -> waiting (a chunk ended, or the prefill is to restart)
    any -> gone (cancelled, failed, rejected)

Work items are kept up to date as things change, not rebuilt at each look, so that one look at 1000 live
requests stays cheap.
"""

import collections.abc as c
import dataclasses
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from engine.core.batch import Sequence, Task, TaskKind, Work
from engine.core.ports import ItemState, Predictor, Share, WorkItem
from engine.core.request import Request
from engine.scheduling.slack import remaining_ns

BatchDeadline = Literal["head", "earliest_live"]


class BookError(AssertionError):
    """An illegal move: a fault of the scheduler or of the executor, never of a user."""


class Stand(StrEnum):
    """Where a live request is."""

    WAITING = "waiting"
    IN_PREFILL = "in_prefill"
    DECODING = "decoding"


@dataclass(slots=True)
class LiveRequest:
    """A request and how far it is. cancelled: its client left while a task still holds it."""

    request: Request
    stand: Stand = Stand.WAITING
    context_tokens: int = 0
    generated_tokens: int = 0
    cancelled: bool = False


@dataclass(slots=True)
class LivePrefill:
    """A prefill task. members: its live requests, the first one first; predicted_ns: of the whole task."""

    task: Task
    members: list[LiveRequest]
    predicted_ns: int
    state: ItemState = ItemState.EXECUTING
    executed_ns: int = 0
    resumed_at_ns: int = 0


@dataclass(frozen=True, slots=True)
class LiveCounts:
    """Live requests by stand; executing and preempted count prefill tasks."""

    waiting: int = 0
    executing: int = 0
    preempted: int = 0
    decoding: int = 0


@dataclass
class RequestBook:
    """All live requests and prefill tasks. predictor: prices waiting items and tasks, once each."""

    predictor: Predictor
    batch_deadline: BatchDeadline = "earliest_live"
    _requests: dict[str, LiveRequest] = field(default_factory=dict)
    _items: dict[int, WorkItem] = field(default_factory=dict)
    _prefills: dict[int, LivePrefill] = field(default_factory=dict)
    _executing: LivePrefill | None = None
    _decoding: dict[str, LiveRequest] = field(default_factory=dict)

    # Sight (the View of engine.core.ports).

    @property
    def items(self) -> c.Collection[WorkItem]:
        """Every live prefill item."""
        return self._items.values()

    @property
    def executing(self) -> WorkItem | None:
        """The executing prefill's item."""
        return None if self._executing is None else self._items[self._key(self._executing)]

    @property
    def executing_prefill(self) -> LivePrefill | None:
        """The executing prefill task."""
        return self._executing

    @property
    def decoding(self) -> c.Iterable[LiveRequest]:
        """Requests between their first and their last token, oldest first."""
        return self._decoding.values()

    def find(self, request_id: str) -> LiveRequest | None:
        """The live request of this id."""
        return self._requests.get(request_id)

    def prefill_of(self, item: WorkItem) -> LivePrefill:
        """The task behind an executing or preempted item."""
        return self._prefills[item.key]

    def prefill_holding(self, live: LiveRequest) -> LivePrefill:
        """The prefill task that this request is a member of."""
        for prefill in self._prefills.values():
            if live in prefill.members:
                return prefill
        raise BookError(f"{live.request.request_id} is in no task")

    def counts(self) -> LiveCounts:
        """Live work by stand."""
        preempted = sum(prefill.state is ItemState.PREEMPTED for prefill in self._prefills.values())
        return LiveCounts(
            waiting=len(self._items) - len(self._prefills),
            executing=len(self._prefills) - preempted,
            preempted=preempted,
            decoding=len(self._decoding),
        )

    @property
    def preempted(self) -> int:
        """Number of preempted prefill tasks."""
        return len(self._prefills) - (self._executing is not None)

    def refresh(self, now_ns: int) -> None:
        """Bring tasks' items up to this instant: the executing one goes on, and members of a batch run late."""
        for prefill in self._prefills.values():
            if prefill is self._executing or len(prefill.members) > 1:
                self._post(prefill, now_ns)

    # Moves.

    def arrive(self, request: Request) -> LiveRequest:
        """A new request waits. Raises BookError when a live one has its id."""
        if request.request_id in self._requests:
            raise BookError(f"request id {request.request_id!r} is live already; ids must be unique")
        live = LiveRequest(request)
        self._requests[request.request_id] = live
        self._wait(live)
        return live

    def start(self, task: Task, shares: c.Sequence[Share], now_ns: int) -> LivePrefill:
        """Waiting requests become an executing prefill task."""
        if self._executing is not None:
            raise BookError(f"task {task.task_id} cannot start: task {self._executing.task.task_id} executes")
        members = [self._requests[share.item.members[0].request_id] for share in shares]
        for live in members:
            if live.stand is not Stand.WAITING:
                raise BookError(f"{live.request.request_id} cannot start: it is {live.stand}")
            live.stand = Stand.IN_PREFILL
            del self._items[live.request.seq]
        prefill = LivePrefill(task, members, self.predictor.estimate_ns(Work.of(task)), resumed_at_ns=now_ns)
        self._executing = prefill
        self._prefills[self._key(prefill)] = prefill
        self._post(prefill, now_ns)
        return prefill

    def resume(self, prefill: LivePrefill, now_ns: int) -> None:
        """A preempted prefill executes again."""
        if self._executing is not None or prefill.state is not ItemState.PREEMPTED:
            raise BookError(f"task {prefill.task.task_id} cannot resume: it is {prefill.state}")
        prefill.state = ItemState.EXECUTING
        prefill.resumed_at_ns = now_ns
        self._executing = prefill
        self._post(prefill, now_ns)

    def preempt(self, executed_ns: int, now_ns: int) -> LivePrefill:
        """The executing prefill has stopped at a boundary."""
        prefill = self._must_execute()
        prefill.state = ItemState.PREEMPTED
        prefill.executed_ns = executed_ns
        self._executing = None
        self._post(prefill, now_ns)
        return prefill

    def end(self, prefill: LivePrefill) -> list[LiveRequest]:
        """The task is over, one way or another; its members (cancelled ones too) are to be placed by the caller."""
        if prefill is self._executing:
            self._executing = None
        del self._prefills[self._key(prefill)]
        del self._items[self._key(prefill)]
        return [self._requests[sequence.request_id] for sequence in prefill.task.sequences]

    def wait_again(self, live: LiveRequest, context_tokens: int) -> None:
        """The rest of the prompt after `context_tokens` waits, at the request's own key."""
        live.stand = Stand.WAITING
        live.context_tokens = context_tokens
        self._wait(live)

    def decode(self, live: LiveRequest) -> None:
        """The prompt is computed; tokens are generated one by one."""
        live.stand = Stand.DECODING
        live.context_tokens = live.request.prompt_tokens
        self._decoding[live.request.request_id] = live

    def leave_batch(self, live: LiveRequest, now_ns: int) -> LivePrefill:
        """A member's client left: marked; the batch's deadline is made anew from those who stay, if any."""
        prefill = self.prefill_holding(live)
        live.cancelled = True
        if len(prefill.members) > 1:
            key = self._key(prefill)
            prefill.members.remove(live)
            del self._items[key], self._prefills[key]
            self._prefills[self._key(prefill)] = prefill
            self._post(prefill, now_ns)
        return prefill

    def remove(self, live: LiveRequest) -> None:
        """The request is gone."""
        del self._requests[live.request.request_id]
        self._decoding.pop(live.request.request_id, None)
        if live.stand is Stand.WAITING:
            del self._items[live.request.seq]

    def check(self) -> None:
        """Raise BookError when two of the book's pages disagree."""
        in_tasks = {s.request_id for prefill in self._prefills.values() for s in prefill.task.sequences}
        for request_id, live in self._requests.items():
            waits = any(item.state is ItemState.WAITING and item.members == (live.request,) for item in self.items)
            stands = [waits, request_id in in_tasks, request_id in self._decoding]
            if sum(stands) != 1 or stands.index(True) != list(Stand).index(live.stand):
                raise BookError(f"{request_id} is {live.stand}, but waits={waits}, tasks and decoding={stands[1:]}")
        executing = [p for p in self._prefills.values() if p.state is ItemState.EXECUTING]
        if executing != ([] if self._executing is None else [self._executing]):
            raise BookError(f"{len(executing)} tasks are marked as executing")
        for key, item in self._items.items():
            if key != item.key or (key in self._prefills) != (item.state is not ItemState.WAITING):
                raise BookError(f"item {key} is filed wrongly")

    # Inside.

    def _must_execute(self) -> LivePrefill:
        if self._executing is None:
            raise BookError("no prefill executes")
        return self._executing

    @staticmethod
    def _key(prefill: LivePrefill) -> int:
        return prefill.members[0].request.seq

    def _wait(self, live: LiveRequest) -> None:
        request = live.request
        left = request.prompt_tokens - live.context_tokens
        self._items[request.seq] = WorkItem(
            key=request.seq,
            state=ItemState.WAITING,
            members=(request,),
            arrived_at_ns=request.arrived_at_ns,
            due_at_ns=request.due_at_ns,
            has_slo=request.has_slo,
            remaining_ns=self.predictor.estimate_ns(Work(((left, live.context_tokens),))),
            new_tokens=left,
            context_tokens=live.context_tokens,
        )

    def _post(self, prefill: LivePrefill, now_ns: int) -> None:
        executed = prefill.executed_ns
        if prefill.state is ItemState.EXECUTING:
            executed += now_ns - prefill.resumed_at_ns
        left = remaining_ns(prefill.predicted_ns, executed)
        members = tuple(live.request for live in prefill.members)
        ordering = self._ordering_member(members, now_ns + left)
        known = self._items.get(self._key(prefill))
        if known is not None and known.members == members:
            self._items[known.key] = dataclasses.replace(
                known,
                state=prefill.state,
                due_at_ns=ordering.due_at_ns,
                has_slo=ordering.has_slo,
                remaining_ns=left,
            )
            return
        own = {s.request_id: s for s in prefill.task.sequences}
        sequences: list[Sequence] = [own[request.request_id] for request in members]
        self._items[self._key(prefill)] = WorkItem(
            key=self._key(prefill),
            state=prefill.state,
            members=members,
            arrived_at_ns=min(request.arrived_at_ns for request in members),
            due_at_ns=ordering.due_at_ns,
            has_slo=ordering.has_slo,
            remaining_ns=left,
            new_tokens=sum(s.new_tokens for s in sequences),
            context_tokens=sum(s.context_tokens for s in sequences),
        )

    def _ordering_member(self, members: tuple[Request, ...], ends_at_ns: int) -> Request:
        """The member whose deadline stands for the batch.

        `earliest_live`: the earliest among those that can still meet theirs; if none can, the latest.
        Members without SLO count only where no member has one.
        """
        if self.batch_deadline == "head" or len(members) == 1:
            return members[0]
        bound = [request for request in members if request.has_slo] or list(members)
        in_time = [request for request in bound if ends_at_ns <= request.due_at_ns]
        if in_time:
            return min(in_time, key=lambda request: (request.due_at_ns, request.seq))
        return max(bound, key=lambda request: (request.due_at_ns, -request.seq))


def decode_task(task_id: int, batch: c.Sequence[LiveRequest]) -> Task:
    """One token more for each of these requests."""
    sequences = tuple(
        Sequence(live.request.request_id, live.request.prompt_tokens + live.generated_tokens - 1, 1) for live in batch
    )
    return Task(task_id, TaskKind.DECODE_STEP, sequences)


def prefill_task(task_id: int, shares: c.Sequence[Share]) -> Task:
    """The task that computes these shares."""
    return Task(
        task_id,
        TaskKind.PREFILL,
        tuple(
            Sequence(
                share.item.members[0].request_id,
                share.item.context_tokens,
                share.tokens,
                last=share.tokens == share.item.new_tokens,
            )
            for share in shares
        ),
    )
