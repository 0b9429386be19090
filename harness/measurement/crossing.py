"""Where a curve of attainment over rates falls through the target: the nearest nonincreasing curve, read off."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

TARGET = 0.90


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


def crossings(
    rates: Sequence[float], means: NDArray[np.float64], target: float = TARGET
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """`crossing` of many draws at once: at_least and at_most of each.

    means: draws x rates; nan where a draw has nothing at a rate, which is then left out of that draw.
    """
    at_least, at_most = np.zeros(len(means)), np.zeros(len(means))
    gaps = np.isnan(means).any(axis=1)
    for draw in np.flatnonzero(gaps):
        tried = np.flatnonzero(~np.isnan(means[draw]))
        found = crossing([float(rates[int(i)]) for i in tried], [float(mean) for mean in means[draw, tried]], target)
        at_least[draw], at_most[draw] = found.at_least, found.at_most
    whole = np.flatnonzero(~gaps)
    if whole.size:
        at_least[whole], at_most[whole] = _crossings(np.asarray(rates, dtype=float), means[whole], target)
    return at_least, at_most


def _crossings(
    rates: NDArray[np.float64], means: NDArray[np.float64], target: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    fit = _nonincreasing_fits(means)
    met = fit >= target - 1e-9
    first_missed = np.where(met.all(axis=1), len(rates), met.argmin(axis=1))
    row, last = np.arange(len(fit)), np.clip(first_missed - 1, 0, len(rates) - 2 if len(rates) > 1 else 0)
    after = np.minimum(last + 1, len(rates) - 1)
    drop = fit[row, last] - fit[row, after]
    share = np.clip((fit[row, last] - target) / np.where(drop > 0, drop, 1.0), 0.0, 1.0)
    at = rates[last] + share * (rates[after] - rates[last])
    above, below = first_missed == len(rates), first_missed == 0
    at_least = np.where(above, rates[-1], np.where(below, 0.0, at))
    return at_least, np.where(above, math.inf, np.where(below, rates[0], at))


def _nonincreasing_fits(means: NDArray[np.float64]) -> NDArray[np.float64]:
    """`isotonic_nonincreasing` of each row, equal weights: the least, over beginnings, of the greatest mean from there
    over ends."""
    draws, n = means.shape
    sums = np.concatenate([np.zeros((draws, 1)), np.cumsum(means, axis=1)], axis=1)
    start, stop = np.arange(n)[:, None], np.arange(1, n + 1)[None, :]
    averages = (sums[:, None, 1:] - sums[:, :-1, None]) / np.maximum(stop - start, 1)
    return np.stack([averages[:, : i + 1, i:].max(axis=2).min(axis=1) for i in range(n)], axis=1)
