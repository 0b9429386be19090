"""Time that goes on only when the simulation says so."""


class VirtualClock:
    """Starts at 0 (`engine.core.clock.Clock`)."""

    def __init__(self) -> None:
        self._now_ns = 0

    def now_ns(self) -> int:
        """The present instant."""
        return self._now_ns

    def advance_to(self, at_ns: int) -> None:
        """Jump to an instant. Raises ValueError for one in the past."""
        if at_ns < self._now_ns:
            raise ValueError(f"the clock stands at {self._now_ns} ns and cannot go back to {at_ns} ns")
        self._now_ns = at_ns
