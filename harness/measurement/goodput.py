"""Max goodput: the highest request rate at which the mean attainment over seeds stays at 90 %."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.measurement.crossing import TARGET, MaxGoodput, crossings
from harness.measurement.uncertainty import LEVEL, Interval, counts_of, percentile_interval, resamples


@dataclass(frozen=True, slots=True)
class RatePoint:
    """Attainment of one seed at one rate. The rate's unit is the caller's: req/s, or multiples of the trace's own."""

    seed: int
    rate: float
    attainment: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.rate) and self.rate > 0):
            raise ValueError(f"a rate must be above 0 and finite, got {self.rate}")
        if not 0 <= self.attainment <= 1:
            raise ValueError(f"an attainment lies between 0 and 1, got {self.attainment}")


@dataclass(frozen=True, slots=True)
class Ratio:
    """A max goodput over another. at_least, at_most: as the rates tried bound it; equal = a number.

    interval: by drawing the same seeds for both; None of fewer than two common seeds.
    """

    at_least: float
    at_most: float
    interval: Interval | None
    seeds: int

    @property
    def bound(self) -> str:
        """Empty for a number, "at_least", "at_most", or "unknown" when nothing bounds it."""
        if self.at_least == self.at_most:
            return ""
        if math.isinf(self.at_most):
            return "unknown" if self.at_least == 0 else "at_least"
        return "at_most"

    @property
    def known(self) -> float | None:
        """The number or the bound; None when nothing is known."""
        if self.bound == "unknown":
            return None
        return self.at_most if self.bound == "at_most" else self.at_least


class _Curve:
    """Attainment by seed (rows) and rate (columns); nan where a seed lacks a rate."""

    def __init__(self, points: Iterable[RatePoint], seeds: Sequence[int] | None = None) -> None:
        cells: dict[tuple[int, float], float] = {}
        for point in points:
            if (point.seed, point.rate) in cells:
                raise ValueError(f"seed {point.seed} has two points at rate {point.rate}")
            cells[point.seed, point.rate] = point.attainment
        self.seeds = sorted({seed for seed, _ in cells}) if seeds is None else list(seeds)
        self.rates = sorted({rate for seed, rate in cells if seed in self.seeds})
        if not self.rates:
            raise ValueError("max goodput of no rates")
        table = np.array([[cells.get((seed, rate), math.nan) for rate in self.rates] for seed in self.seeds])
        self._known = (~np.isnan(table)).astype(float)
        self._table: NDArray[np.float64] = np.nan_to_num(table)

    def max_goodputs(
        self, counts: NDArray[np.float64], target: float
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """At least and at most, of draws x seeds: each seed taken `counts` times; a rate that none has is left out."""
        totals = counts @ self._known
        sums = counts @ self._table
        means = np.divide(sums, totals, out=np.full_like(sums, math.nan), where=totals > 0)
        return crossings(self.rates, means, target)


def max_goodput(
    points: Sequence[RatePoint], target: float = TARGET, level: float = LEVEL
) -> tuple[MaxGoodput, Interval | None]:
    """Max goodput of the mean over seeds, and its interval by resampling seeds through the whole procedure.

    Interval: None of fewer than two seeds; an end of 0 or infinity says that the rates tried do not bound it.
    Raises ValueError of no points, or of two points of one seed at one rate.
    """
    curve = _Curve(points)
    return estimate_and_interval(lambda counts: curve.max_goodputs(counts, target), len(curve.seeds), level)


def estimate_and_interval(
    max_goodputs: Callable[[NDArray[np.float64]], tuple[NDArray[np.float64], NDArray[np.float64]]],
    seeds: int,
    level: float = LEVEL,
) -> tuple[MaxGoodput, Interval | None]:
    """What a procedure finds with each seed once, and its interval by resampling them; None of fewer than two.

    max_goodputs: counts (draws x seeds) to at_least and at_most of each draw.
    """
    at_least, at_most = max_goodputs(np.ones((1, seeds)))
    estimate = MaxGoodput(float(at_least[0]), float(at_most[0]))
    if seeds < 2:
        return estimate, None
    draws = resamples(seeds)
    lows, highs = max_goodputs(counts_of(draws))
    return estimate, percentile_interval(lows.tolist(), highs.tolist(), [draw.weight for draw in draws], level)


def goodput_ratio(
    a: Sequence[RatePoint], b: Sequence[RatePoint], target: float = TARGET, level: float = LEVEL
) -> Ratio:
    """Max goodput of a over that of b, over the seeds both have, drawn in pairs.

    A bound on either side gives a one-sided ratio, in the estimate and in every resample alike.
    Raises ValueError when there is no common seed.
    """
    seeds = sorted({point.seed for point in a} & {point.seed for point in b})
    if not seeds:
        raise ValueError("a paired ratio needs at least one seed that both series have")
    curves = _Curve(a, seeds), _Curve(b, seeds)

    def ratios(counts: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        above, below = (curve.max_goodputs(counts, target) for curve in curves)
        bounded = np.divide(above[1], below[0], out=np.full_like(below[0], math.inf), where=below[0] > 0)
        return above[0] / below[1], bounded

    at_least, at_most = ratios(np.ones((1, len(seeds))))
    found = float(at_least[0]), float(at_most[0])
    if len(seeds) < 2:
        return Ratio(*found, None, len(seeds))
    draws = resamples(len(seeds))
    lows, highs = ratios(counts_of(draws))
    interval = percentile_interval(lows.tolist(), highs.tolist(), [draw.weight for draw in draws], level)
    return Ratio(*found, interval, len(seeds))
