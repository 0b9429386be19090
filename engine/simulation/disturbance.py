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
    """Another predictor's estimates, each times a factor between 1 - error and 1 + error, uniformly.

    The factor belongs to the lengths of the work, whatever their order, and to the seed: asked again, by another
    system or in another process, it is the same. error: at least 0 and below 1.
    """

    def __init__(self, inner: Predictor, error: float, seed: int) -> None:
        if not 0 <= error < 1:
            raise ValueError(f"the predictor's relative error must be at least 0 and below 1, got {error}")
        self._inner = inner
        self._error = error
        self._seed = seed

    def estimate_ns(self, work: Work) -> int:
        """The inner estimate, off by this work's factor."""
        estimate_ns = self._inner.estimate_ns(work)
        return round(estimate_ns * self.factor(work)) if self._error else estimate_ns

    def factor(self, work: Work) -> float:
        """What estimates of this work are multiplied by."""
        text = f"{self._seed} {work.kind} {sorted(work.lengths)}"
        drawn = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") / 2**64
        return 1 + self._error * (2 * drawn - 1)

    def observe(self, work: Work, executed_ns: int) -> None:
        """Passed on."""
        self._inner.observe(work, executed_ns)
