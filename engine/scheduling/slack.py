"""Deadline, remaining work, slack: pure arithmetic on instants and durations in nanoseconds."""

import collections.abc as c
from operator import attrgetter
from typing import Literal

from engine.core.ports import WorkItem
from engine.core.request import Request

BatchDeadline = Literal["head", "earliest_live"]
"""Whose deadline a batch is ordered by: its first member's (as released), or the earliest that can still be met."""

_DUE = attrgetter("due_at_ns")


def remaining_ns(predicted_ns: int, executed_ns: int) -> int:
    """Predicted time of what is left; never below 0, however long the work has already taken."""
    return max(0, predicted_ns - executed_ns)


def slack_ns(item: WorkItem, now_ns: int) -> int:
    """Time the item can still wait and meet its deadline (paper, S-EDF): due - now - remaining."""
    return item.due_at_ns - now_ns - item.remaining_ns


def feasible(item: WorkItem, now_ns: int) -> bool:
    """Whether the item would meet its deadline if it ran from now on without a pause."""
    return slack_ns(item, now_ns) > 0


def deadline_member(members: c.Sequence[Request], rule: BatchDeadline, ends_at_ns: int) -> Request:
    """The member whose deadline stands for the batch, which would end at `ends_at_ns` if it ran from now on.

    `earliest_live`: the earliest deadline among members that can still meet theirs; if none can, the latest.
    Members without SLO count only where no member has one; then the first to be due does.
    """
    if rule == "head" or len(members) == 1:
        return members[0]
    bound = [request for request in members if request.has_slo]
    if not bound:
        return min(members, key=_DUE)
    in_time = [request for request in bound if request.due_at_ns > ends_at_ns]
    return min(in_time, key=_DUE) if in_time else max(bound, key=_DUE)
