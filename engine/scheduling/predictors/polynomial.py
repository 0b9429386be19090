"""TTFT predictor: a cubic polynomial over prompt length, fitted to measured prefills (paper, TTFT predictor).

The published form prices a prompt of n tokens from position 0. Here a sequence of n new tokens after x cached
ones costs P(n + x) - P(x), so later chunks and batches are priced too:

    t = c0 + c1 sum(n) + c2 sum((n+x)^2 - x^2) + c3 sum((n+x)^3 - x^3)
"""

import collections.abc as c
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.core.batch import TaskKind, Work
from engine.core.clock import NS_PER_S

OUTLIER_SHARE = 0.4
"""Samples whose residual exceeds this share of the largest one are dropped, then the rest is fitted again."""
NEGLIGIBLE = 1e-9
"""Relative residual below which no sample is an outlier."""


@dataclass(frozen=True, slots=True)
class PrefillSample:
    """One measured prefill: `new_tokens` after `context_tokens`, in seconds."""

    new_tokens: int
    context_tokens: int
    seconds: float


class PolynomialPredictor:
    """Static: learns nothing from what it observes.

    coefficients: c0 ... c3 in seconds, seconds per token, per token squared, per token cubed.
    A decode step is priced as one new token a sequence.
    """

    def __init__(self, coefficients: tuple[float, float, float, float]) -> None:
        self._c0, self._c1, self._c2, self._c3 = coefficients

    @property
    def coefficients(self) -> tuple[float, float, float, float]:
        """c0 ... c3."""
        return (self._c0, self._c1, self._c2, self._c3)

    def estimate_ns(self, work: Work) -> int:
        """Never negative, whatever the fit says of short prompts."""
        seconds = self._c0
        for new, context in work.lengths:
            end = new + context
            seconds += new * self._c1
            if work.kind is not TaskKind.DECODE_STEP:
                seconds += (end * end - context * context) * self._c2 + (end**3 - context**3) * self._c3
        return max(0, round(seconds * NS_PER_S))

    def observe(self, work: Work, executed_ns: int) -> None:
        """Ignored: the fit is static, as published."""


def fit(samples: c.Sequence[PrefillSample]) -> PolynomialPredictor:
    """Least squares in relative error, outliers dropped once, coefficients not below 0.

    Coefficients below 0 would make a longer prompt cheaper somewhere; a term that comes out negative is
    left out and the others fitted again. Raises ValueError on fewer than 4 samples or one that is not positive.
    """
    if len(samples) < 4:
        raise ValueError(f"a polynomial needs at least 4 samples, got {len(samples)}")
    if any(not sample.seconds > 0 for sample in samples):
        raise ValueError("every sample must take more than 0 seconds")
    terms = np.array([_terms(sample) for sample in samples])
    seconds = np.array([sample.seconds for sample in samples])
    first = _nonnegative(terms, seconds)
    residual = np.abs(terms @ first - seconds) / seconds
    kept = residual <= OUTLIER_SHARE * residual.max()
    # A rule that drops a part of the largest residual drops something of every fit, however good: not when that
    # leaves less than half of the samples, or when nothing is off.
    trusted = residual.max() < NEGLIGIBLE or kept.sum() < max(4, len(samples) / 2)
    second = first if trusted else _nonnegative(terms[kept], seconds[kept])
    return PolynomialPredictor((float(second[0]), float(second[1]), float(second[2]), float(second[3])))


def _terms(sample: PrefillSample) -> tuple[float, float, float, float]:
    n, x = float(sample.new_tokens), float(sample.context_tokens)
    end = n + x
    return (1.0, n, end**2 - x**2, end**3 - x**3)


def _nonnegative(terms: npt.NDArray[np.float64], seconds: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    rows = terms / seconds[:, None]
    active = list(range(terms.shape[1]))
    while True:
        scale = np.abs(rows[:, active]).max(axis=0)
        solved, *_ = np.linalg.lstsq(rows[:, active] / scale, np.ones(len(seconds)), rcond=None)
        solved = solved / scale
        if (solved >= 0).all() or len(active) == 1:
            break
        active.pop(int(np.argmin(solved * scale)))
    found = np.zeros(terms.shape[1])
    found[active] = np.maximum(solved, 0)
    return found
