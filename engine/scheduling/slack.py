"""Deadline, remaining work, slack: pure arithmetic on instants and durations in nanoseconds."""

from engine.core.ports import WorkItem


def remaining_ns(predicted_ns: int, executed_ns: int) -> int:
    """Predicted time of what is left; never below 0, however long the work has already taken."""
    return max(0, predicted_ns - executed_ns)


def slack_ns(item: WorkItem, now_ns: int) -> int:
    """Time the item can still wait and meet its deadline (paper, S-EDF): due - now - remaining."""
    return item.due_at_ns - now_ns - item.remaining_ns


def feasible(item: WorkItem, now_ns: int) -> bool:
    """Whether the item would meet its deadline if it ran from now on without a pause."""
    return slack_ns(item, now_ns) > 0
