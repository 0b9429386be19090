"""What happened, told to the scheduler. Every event bears the instant it happened at.

At one instant events are handled in the order of `RANK`, then of `event_seq`: first what frees
resources, last what asks for them.
"""

from dataclasses import dataclass
from typing import Final

from engine.core.request import Request


@dataclass(frozen=True, slots=True)
class Output:
    """What a completed task gave one of its sequences.

    token_id: the token sampled; None for a chunk that does not end the prompt.
    finish_reason: "stop" or "length" when the request is over, None while it goes on.
    """

    request_id: str
    token_id: int | None
    finish_reason: str | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """The executing task ran to its end. executed_ns: time it executed in all, pauses not counted."""

    at_ns: int
    event_seq: int
    task_id: int
    executed_ns: int
    outputs: tuple[Output, ...]


@dataclass(frozen=True, slots=True)
class Preempted:
    """A pause took effect: the task stopped before operator `operator_index` and holds its place."""

    at_ns: int
    event_seq: int
    task_id: int
    executed_ns: int
    operator_index: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The task broke; none of its members can go on. The executor keeps nothing of it but their KV."""

    at_ns: int
    event_seq: int
    task_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The client left, or asked to stop the request."""

    at_ns: int
    event_seq: int
    request_id: str


@dataclass(frozen=True, slots=True)
class KVReleased:
    """The KV blocks of a request are free again: no launched write to them is pending."""

    at_ns: int
    event_seq: int
    request_id: str


@dataclass(frozen=True, slots=True)
class SendAsked:
    """A decode instance has room for a request that was prefilled here: its KV may leave."""

    at_ns: int
    event_seq: int
    request_id: str


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request came in."""

    at_ns: int
    event_seq: int
    request: Request


@dataclass(frozen=True, slots=True)
class Woken:
    """The instant of a Wake has come."""

    at_ns: int
    event_seq: int


Event = Completion | Preempted | Failed | Cancelled | KVReleased | SendAsked | Arrival | Woken

RANK: Final[dict[type, int]] = {
    Completion: 0,
    Preempted: 1,
    Failed: 2,
    Cancelled: 3,
    KVReleased: 4,
    SendAsked: 5,
    Arrival: 6,
    Woken: 7,
}


def event_order(event: Event) -> tuple[int, int, int]:
    """Sort key: instant, rank of the kind, sequence number."""
    return (event.at_ns, RANK[type(event)], event.event_seq)
