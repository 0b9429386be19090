"""The seams: what a policy, a batching rule, a predictor, an executor and an event source must be."""

import collections.abc as c
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from engine.core.batch import Work
from engine.core.commands import ExecutorCommand
from engine.core.events import Event
from engine.core.request import Request


class ItemState(StrEnum):
    """Where a work item stands."""

    WAITING = "waiting"
    EXECUTING = "executing"
    PREEMPTED = "preempted"
    DECODE = "decode"


@dataclass(frozen=True, slots=True)
class WorkItem:
    """One thing that could execute next: a waiting request (or the rest of one), a prefill task, or a decode step.

    A decode step is shown only where steps have deadlines (SchedulerSettings.decode_order), and once it is urgent.

    key: identity among the live items: the seq of its first member.
    members: one request while waiting; the live members of the batch once it is a task.
    arrived_at_ns: of a batch: its earliest member's.
    due_at_ns: of a batch: as its deadline rule says (`head` or `earliest_live`).
    has_slo: False orders the item by the rule for requests without SLO.
    remaining_ns: predicted time of what is left, max(0, predicted - executed); of a waiting request:
        predicted time of the rest of its prompt, alone.
    new_tokens, context_tokens: tokens yet to compute and tokens already in the KV cache (a batch: sums).
    """

    key: int
    state: ItemState
    members: tuple[Request, ...]
    arrived_at_ns: int
    due_at_ns: int
    has_slo: bool
    remaining_ns: int
    new_tokens: int
    context_tokens: int
    tie: int = field(init=False)
    """Orders items that are otherwise equal: the executing one first, then by arrival."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "tie", -1 if self.state is ItemState.EXECUTING else self.key)


class OnPreempt(StrEnum):
    """What becomes of the executing task when something more urgent stands before it."""

    NEVER = "never"  # it runs to its end; nothing is asked of the executor
    PAUSE = "pause"  # it stops at the next boundary of the executor's granularity and keeps its place
    RESTART = "restart"  # it stops likewise, and what it computed is thrown away


class View(Protocol):
    """Read-only sight of all live prefill work. Valid during one call only."""

    @property
    def items(self) -> c.Collection[WorkItem]:
        """Every live item, in order of `due_at_ns`, ties by `tie`."""
        ...

    @property
    def executing(self) -> WorkItem | None:
        """The executing prefill, if any (also among `items`)."""
        ...


@dataclass(frozen=True, slots=True)
class Plan:
    """What a policy wants.

    order: items, most urgent first. An item left out is not run in this round.
    preempt: what happens to the executing item when one that fits stands before it in `order`.
    reject: requests refused now, each with the sentence its client gets; waiting ones only, not in `order`.
    """

    order: c.Sequence[WorkItem]
    preempt: OnPreempt = OnPreempt.PAUSE
    reject: tuple[tuple[Request, str], ...] = ()


class Policy(Protocol):
    """Decides the order of work. Pure: same view and instant, same plan."""

    def plan(self, view: View, now_ns: int) -> Plan:
        """Order the live work at this instant."""
        ...


@dataclass(frozen=True, slots=True)
class Share:
    """How much of a waiting item a batch takes: `tokens` of its `new_tokens` (fewer = a chunk)."""

    item: WorkItem
    tokens: int


class Batching(Protocol):
    """Decides which waiting items start together."""

    def select(
        self,
        order: c.Sequence[WorkItem],
        fits: c.Callable[[c.Sequence[Share]], bool],
        predictor: "Predictor",
        now_ns: int,
    ) -> c.Sequence[Share]:
        """Shares of one task: order[0] first, then others of `order`. Empty = order[0] does not fit even alone.

        order: most urgent first. order[0] is waiting; later items may be of any state, only waiting
            ones may be taken.
        fits: whether KV blocks and activation bytes suffice for these shares together.
        """
        ...


class Predictor(Protocol):
    """Estimates execution time. Changes only through `observe`."""

    def estimate_ns(self, work: Work) -> int:
        """Predicted unpreempted execution time of this work."""
        ...

    def observe(self, work: Work, executed_ns: int) -> None:
        """Learn from a completed task; may ignore it."""
        ...


class Executor(Protocol):
    """Obeys. One executing task at most; any number of preempted ones."""

    def submit(self, commands: c.Sequence[ExecutorCommand]) -> None:
        """Carry out commands in order, without waiting for their effect."""
        ...


class EventSource(Protocol):
    """Where a driver gets its events."""

    def wait(self) -> list[Event]:
        """Block until something happened; all that is due, in `event_order`. Empty = the source is closed."""
        ...

    def wake_at(self, at_ns: int) -> None:
        """Let Woken happen at this instant, or as soon as possible after it."""
        ...
