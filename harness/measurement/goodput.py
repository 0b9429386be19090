"""Max goodput: the highest request rate at which the mean attainment over seeds stays at 90 %."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.measurement.uncertainty import LEVEL, Interval, percentile_interval, resamples

TARGET = 0.90


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
class MaxGoodput:
    """What the rates tried say: the max goodput lies between at_least and at_most.

    Equal: the curve crosses the target there. at_least = 0: it lies below the lowest rate tried (at_most).
    at_most = inf: it is at or above the highest rate tried (at_least).
    """

    at_least: float
    at_most: float

    @property
    def bound(self) -> str:
        """Empty for a crossing, "below_lowest" or "above_highest" for a bound."""
        if self.at_least == self.at_most:
            return ""
        return "above_highest" if math.isinf(self.at_most) else "below_lowest"

    @property
    def known(self) -> float:
        """The crossing, or the rate that bounds it; never to be shown without `bound`."""
        return self.at_most if self.bound == "below_lowest" else self.at_least


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


def isotonic_nonincreasing(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Least-squares nonincreasing fit, by pooling adjacent violators. O(n)."""
    if any(weight <= 0 for weight in weights):
        raise ValueError("isotonic weights must be above 0")
    pools: list[tuple[float, float, int]] = []  # mean, weight, members
    for value, weight in zip(values, weights, strict=True):
        mean, total, members = value, weight, 1
        while pools and pools[-1][0] < mean:
            before, before_weight, before_members = pools.pop()
            mean = (before * before_weight + mean * total) / (before_weight + total)
            total, members = before_weight + total, before_members + members
        pools.append((mean, total, members))
    return [mean for mean, _, members in pools for _ in range(members)]


def crossing(rates: Sequence[float], means: Sequence[float], target: float = TARGET) -> MaxGoodput:
    """Where the nonincreasing fit of `means` over ascending `rates` falls through the target, linear between points."""
    if not rates:
        raise ValueError("max goodput of no rates")
    fit = isotonic_nonincreasing(means, [1.0] * len(means))
    # Means of shares such as 0.9 come out as 0.8999...: a hair below the target is at the target.
    met = [value >= target - 1e-9 for value in fit]
    if not met[0]:
        return MaxGoodput(0.0, rates[0])
    if met[-1]:
        return MaxGoodput(rates[-1], math.inf)
    last = met.index(False) - 1
    drop = fit[last] - fit[last + 1]
    share = min(1.0, max(0.0, (fit[last] - target) / drop))
    at = rates[last] + share * (rates[last + 1] - rates[last])
    return MaxGoodput(at, at)


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
        self._table: NDArray[np.float64] = np.array(
            [[cells.get((seed, rate), math.nan) for rate in self.rates] for seed in self.seeds]
        )

    def max_goodput(self, counts: Sequence[int], target: float) -> MaxGoodput:
        """With each seed taken `counts` times; a rate that none of them has is left out."""
        weights = np.where(np.isnan(self._table), 0.0, np.asarray(counts, dtype=float)[:, None])
        totals = weights.sum(axis=0)
        sums = (np.nan_to_num(self._table) * weights).sum(axis=0)
        tried = [i for i, total in enumerate(totals) if total > 0]
        means = [float(sums[i] / totals[i]) for i in tried]
        return crossing([self.rates[i] for i in tried], means, target)


def max_goodput(
    points: Sequence[RatePoint], target: float = TARGET, level: float = LEVEL
) -> tuple[MaxGoodput, Interval | None]:
    """Max goodput of the mean over seeds, and its interval by resampling seeds through the whole procedure.

    Interval: None of fewer than two seeds; an end of 0 or infinity says that the rates tried do not bound it.
    Raises ValueError of no points, or of two points of one seed at one rate.
    """
    curve = _Curve(points)
    estimate = curve.max_goodput([1] * len(curve.seeds), target)
    if len(curve.seeds) < 2:
        return estimate, None
    draws = resamples(len(curve.seeds))
    found = [curve.max_goodput(draw.counts, target) for draw in draws]
    weights = [draw.weight for draw in draws]
    return estimate, percentile_interval([f.at_least for f in found], [f.at_most for f in found], weights, level)


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

    def ratio(counts: Sequence[int]) -> tuple[float, float]:
        above, below = (curve.max_goodput(counts, target) for curve in curves)
        return above.at_least / below.at_most, above.at_most / below.at_least if below.at_least else math.inf

    at_least, at_most = ratio([1] * len(seeds))
    if len(seeds) < 2:
        return Ratio(at_least, at_most, None, len(seeds))
    draws = resamples(len(seeds))
    found = [ratio(draw.counts) for draw in draws]
    weights = [draw.weight for draw in draws]
    interval = percentile_interval([low for low, _ in found], [high for _, high in found], weights, level)
    return Ratio(at_least, at_most, interval, len(seeds))
