"""The schedule: requests leave at absolute due instants, so that lateness of one never moves the next."""

import bisect
import collections.abc as c

from harness.loadgen.timer import Waker


async def pace(due_ns: c.Sequence[int], start_ns: int, waker: Waker) -> c.AsyncIterator[int]:
    """Yield the index of each request when it is due, in order.

    due_ns: nanoseconds after the start, ascending. start_ns: the run's start on CLOCK_MONOTONIC.
    A late one is yielded at once and shortens no other's wait: nothing is skipped or re-timed.
    """
    for index, due in enumerate(due_ns):
        await waker.sleep_until(start_ns + due)
        yield index


def rate_rps(instants_ns: c.Sequence[int]) -> float:
    """Mean rate of ascending instants: gaps over span. 0 for fewer than two requests or no span."""
    if len(instants_ns) < 2 or instants_ns[-1] == instants_ns[0]:
        return 0.0
    return (len(instants_ns) - 1) * 1e9 / (instants_ns[-1] - instants_ns[0])


def peak_in_flight(due_ns: c.Sequence[int], lifetime_ns: int) -> int:
    """Most requests that can be open at once when each lives `lifetime_ns` at most (due_ns ascending)."""
    return max(
        (index + 1 - bisect.bisect_left(due_ns, due - lifetime_ns) for index, due in enumerate(due_ns)), default=0
    )
