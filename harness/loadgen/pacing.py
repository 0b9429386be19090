"""The schedule: requests leave at absolute due instants, so that lateness of one never moves the next."""

import asyncio
import bisect
import collections.abc as c
import time

from engine.core.clock import NS_PER_MS, NS_PER_S
from harness.loadgen.timer import Waker

SPARE_NS = NS_PER_MS
"""With more time than this until the next request is due there is a moment for something else."""


async def pace(
    due_ns: c.Sequence[int], start_ns: int, waker: Waker, meanwhile: c.Callable[[], bool] = lambda: False
) -> c.AsyncIterator[int]:
    """Yield the index of each request when it is due, in order.

    due_ns: nanoseconds after the start, ascending. start_ns: the run's start on CLOCK_MONOTONIC.
    A late one is yielded at once and shortens no other's wait: nothing is skipped or re-timed.
    meanwhile: a short piece of work for spare moments; False = there is none at present.
    """
    for index, due in enumerate(due_ns):
        while start_ns + due - time.monotonic_ns() > SPARE_NS and meanwhile():
            await asyncio.sleep(0)  # replies come first
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


def longest_lifetime_s(due_ns: c.Sequence[int], most_open: int) -> int:
    """The most whole seconds that each request may live so that never more than `most_open` are open at once."""
    longest = (due_ns[-1] - due_ns[0]) // NS_PER_S + 1 if due_ns else 0
    return bisect.bisect_right(range(1, longest + 1), most_open, key=lambda s: peak_in_flight(due_ns, s * NS_PER_S))
