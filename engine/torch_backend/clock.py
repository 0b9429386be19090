"""The real clock of the engine."""

import time


class MonotonicClock:
    """CLOCK_MONOTONIC: one origin for every process of a Linux machine, so stamps of two processes compare."""

    def now_ns(self) -> int:
        """The present instant in nanoseconds; never goes back."""
        return time.monotonic_ns()
