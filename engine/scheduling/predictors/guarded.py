"""A predictor that cannot hurt the engine: what makes no sense is clamped and counted."""

from engine.core.batch import Work
from engine.core.clock import NS_PER_S
from engine.core.ports import Predictor

LONGEST_NS = 24 * 3600 * NS_PER_S


class GuardedPredictor:
    """Another predictor's estimates, held between 0 and a day. `clamped` counts the repairs.

    NaN and what is below 0 become 0; too long, or outside what the predictor knows (ValueError,
    OverflowError), a day: such work is behind all that can be priced.
    """

    def __init__(self, inner: Predictor) -> None:
        self._inner = inner
        self.clamped = 0

    def estimate_ns(self, work: Work) -> int:
        """The inner estimate, if it is one."""
        try:
            value = self._inner.estimate_ns(work)
        except (ValueError, OverflowError):
            self.clamped += 1
            return LONGEST_NS
        if 0 <= value <= LONGEST_NS:
            return int(value)
        self.clamped += 1
        return LONGEST_NS if value > LONGEST_NS else 0

    def observe(self, work: Work, executed_ns: int) -> None:
        """Passed on."""
        self._inner.observe(work, executed_ns)
