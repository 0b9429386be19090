"""Intervals: Wilson for one run's share, bootstrap over seeds for everything else."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")

LEVEL = 0.95
RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Interval:
    """A confidence interval, both ends included. An end may be infinite: nothing bounds it on that side."""

    low: float
    high: float


def wilson(met: int, n: int, level: float = LEVEL) -> Interval | None:
    """Wilson's score interval of a share of n independent requests; None of no requests.

    Requests of one run wait in one queue and are not independent: across seeds use `bootstrap`.
    """
    if not 0 <= met <= n:
        raise ValueError(f"met must lie between 0 and n, got {met} of {n}")
    if n == 0:
        return None
    z = NormalDist().inv_cdf((1 + level) / 2)
    share = met / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return Interval(0.0 if met == 0 else max(0.0, centre - half), 1.0 if met == n else min(1.0, centre + half))


@dataclass(frozen=True, slots=True)
class Resample:
    """One way of drawing n seeds out of n with replacement: how often each is drawn, and how likely that is."""

    counts: tuple[int, ...]
    weight: float


@lru_cache(maxsize=16)  # a table holds many intervals over the same number of seeds
def resamples(n: int, limit: int = RESAMPLES, seed: int = 0) -> tuple[Resample, ...]:
    """The bootstrap's draws of n seeds; weights sum to 1.

    All of them, each with its multinomial probability, where there are at most `limit` (n <= 7 with
    the default): no chance is left in the interval then. Otherwise `limit` random ones.
    """
    if n < 1:
        raise ValueError("resampling needs at least one seed")
    if math.comb(2 * n - 1, n) <= limit:
        return tuple(Resample(counts, _multinomial(counts)) for counts in _compositions(n, n))
    drawn = np.random.default_rng(seed).multinomial(n, [1 / n] * n, size=limit)
    return tuple(Resample(tuple(int(count) for count in counts), 1 / limit) for counts in drawn)


def counts_of(draws: Sequence[Resample]) -> NDArray[np.float64]:
    """The draws as a matrix: one row each, one column per seed."""
    return np.array([draw.counts for draw in draws], dtype=float)


def percentile_interval(
    lows: Sequence[float], highs: Sequence[float], weights: Sequence[float], level: float = LEVEL
) -> Interval:
    """Percentile interval of resampled estimates, each known to lie between its low and its high.

    The lower end is a low and the upper end a high, so that an estimate known only as a bound widens
    the interval instead of being given a number.
    """
    tail = (1 - level) / 2
    return Interval(_weighted_quantile(lows, weights, tail), _weighted_quantile(highs, weights, 1 - tail))


def bootstrap(groups: Sequence[T], statistic: Callable[[Sequence[T]], float], level: float = LEVEL) -> Interval | None:
    """Percentile bootstrap interval of a statistic of several seeds' results; None of fewer than two.

    groups: one result per seed. statistic: takes as many results, some of them repeated.
    """
    if len(groups) < 2:
        return None
    draws = resamples(len(groups))
    values = [statistic(repeated(groups, draw)) for draw in draws]
    return percentile_interval(values, values, [draw.weight for draw in draws], level)


def bootstrap_mean(samples: Sequence[float], level: float = LEVEL) -> Interval | None:
    """Percentile bootstrap interval of the mean of independent samples; None of fewer than two."""
    if len(samples) < 2:
        return None
    draws = resamples(len(samples))
    means = [float(mean) for mean in counts_of(draws) @ np.asarray(samples, dtype=float) / len(samples)]
    return percentile_interval(means, means, [draw.weight for draw in draws], level)


def paired_ratio(
    a: Sequence[T], b: Sequence[T], statistic: Callable[[Sequence[T]], float], level: float = LEVEL
) -> tuple[float, Interval | None]:
    """statistic(a) / statistic(b), and its interval by drawing the same seeds for both.

    a, b: one result per seed, in the same order of seeds. A zero denominator gives infinity, 0 / 0 nan.
    """
    if len(a) != len(b):
        raise ValueError(f"a paired ratio needs the same seeds on both sides, got {len(a)} and {len(b)}")

    def ratio(pairs: Sequence[tuple[T, T]]) -> float:
        above, below = statistic([x for x, _ in pairs]), statistic([y for _, y in pairs])
        if below == 0:
            return math.nan if above == 0 else math.inf
        return above / below

    pairs = list(zip(a, b, strict=True))
    return ratio(pairs), bootstrap(pairs, ratio, level)


def repeated(groups: Sequence[T], draw: Resample) -> list[T]:
    """The groups, each as often as the draw says."""
    return [group for group, count in zip(groups, draw.counts, strict=True) for _ in range(count)]


def _weighted_quantile(values: Sequence[float], weights: Sequence[float], q: float) -> float:
    """The smallest value whose cumulated weight reaches q."""
    reached = 0.0
    ordered = sorted(zip(values, weights, strict=True))
    for value, weight in ordered:
        reached += weight
        if reached >= q - 1e-12:
            return value
    return ordered[-1][0]


def _multinomial(counts: tuple[int, ...]) -> float:
    n = sum(counts)
    ways = math.factorial(n)
    for count in counts:
        ways //= math.factorial(count)
    return float(ways / n**n)


def _compositions(total: int, parts: int) -> list[tuple[int, ...]]:
    """Every way of writing `total` as a sum of `parts` numbers >= 0, in order."""
    if parts == 1:
        return [(total,)]
    return [(first, *rest) for first in range(total + 1) for rest in _compositions(total - first, parts - 1)]
