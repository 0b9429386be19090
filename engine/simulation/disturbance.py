"""What makes a simulated world less tidy than its models: operator times that vary, predictions that err."""

import hashlib
import math

import numpy as np
from numpy.typing import NDArray

from engine.core.batch import Work
from engine.core.ports import Predictor


class OperatorNoise:
    """Multiplies operator times by log-normal factors of mean 1.

    cv: coefficient of variation of a factor; 0 leaves every time as it is. Same seed and same calls, same factors.
    """

    def __init__(self, cv: float, seed: int) -> None:
        variance = math.log1p(cv * cv)
        self._sigma = math.sqrt(variance)
        self._shift = -variance / 2  # exp(shift + sigma z) has mean 1
        self._random = np.random.default_rng(seed)

    def disturb(self, seconds: NDArray[np.float64]) -> NDArray[np.float64]:
        """The times of one execution of these operators."""
        if not self._sigma:
            return seconds
        factors = self._random.standard_normal(len(seconds))
        factors *= self._sigma
        factors += self._shift
        np.exp(factors, out=factors)
        factors *= seconds
        return factors


class ErringPredictor:
    """Another predictor's estimates, each times a log-normal factor of mean 1.

    cv: coefficient of variation of a factor, the relative error; 0 leaves every estimate as it is.
    The factor belongs to the lengths of the work, whatever their order, and to the seed: no state, so that asked again,
    by another system or in another process, it is the same.
    """

    def __init__(self, inner: Predictor, cv: float, seed: int) -> None:
        if not (cv >= 0 and math.isfinite(cv)):
            raise ValueError(f"the predictor's relative error must be 0 or more, got {cv}")
        self._inner = inner
        self._seed = seed
        variance = math.log1p(cv * cv)
        self._sigma = math.sqrt(variance)
        self._shift = -variance / 2

    def estimate_ns(self, work: Work) -> int:
        """The inner estimate, off by this work's factor."""
        estimate_ns = self._inner.estimate_ns(work)
        return round(estimate_ns * self.factor(work)) if self._sigma else estimate_ns

    def factor(self, work: Work) -> float:
        """What estimates of this work are multiplied by. Two hashed words give a normal draw (Box and Muller)."""
        digest = hashlib.blake2b(repr((self._seed, sorted(work.lengths))).encode(), digest_size=16).digest()
        first, second = (int.from_bytes(part, "little") for part in (digest[:8], digest[8:]))
        normal = math.sqrt(-2 * math.log((first + 1) / 2**64)) * math.cos(2 * math.pi * second / 2**64)
        return math.exp(self._shift + self._sigma * normal)

    def observe(self, work: Work, executed_ns: int) -> None:
        """Passed on."""
        self._inner.observe(work, executed_ns)
