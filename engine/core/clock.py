"""Time: integer nanoseconds of one monotonic clock."""

from typing import Protocol

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000
NS_PER_US = 1_000


class Clock(Protocol):
    """What a driver asks for the time. The scheduler never does: it is told."""

    def now_ns(self) -> int:
        """The present instant, in nanoseconds; never goes back."""
        ...


def seconds_to_ns(seconds: float) -> int:
    """Nearest whole number of nanoseconds."""
    return round(seconds * NS_PER_S)


def ns_to_seconds(ns: int) -> float:
    """Seconds as a float."""
    return ns / NS_PER_S
