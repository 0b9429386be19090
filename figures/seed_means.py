"""Values over the seeds of a point: mean and 95 % interval."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from harness.measurement.uncertainty import Interval, bootstrap, wilson


@dataclass(frozen=True, slots=True)
class SeedMean:
    """Mean over seeds with its interval. interval: "seeds" (resampled seeds) or "wilson" (one seed, over requests)."""

    mean: float
    low: float
    high: float
    interval: str


def share_over_seeds(shares: Sequence[float], requests: Sequence[int]) -> SeedMean:
    """Mean share over seeds, each seed weighing the same; shares in 0..1, requests >= 1 behind each.

    With one seed there is nothing to resample: the Wilson interval over its requests stands instead.
    """
    mean = mean_of(shares)
    by_seed = bootstrap(shares, mean_of)
    if by_seed is not None:
        return SeedMean(mean, by_seed.low, by_seed.high, "seeds")
    over_requests = wilson(round(shares[0] * requests[0]), requests[0]) or Interval(math.nan, math.nan)
    return SeedMean(mean, over_requests.low, over_requests.high, "wilson")


def value_over_seeds(values: Sequence[float]) -> SeedMean:
    """Mean of any value over seeds; without an interval (both ends nan) when there is one seed."""
    mean = mean_of(values)
    by_seed = bootstrap(values, mean_of)
    if by_seed is None:
        return SeedMean(mean, math.nan, math.nan, "")
    return SeedMean(mean, by_seed.low, by_seed.high, "seeds")


def mean_of(values: Sequence[float]) -> float:
    """Arithmetic mean; at least one value."""
    return math.fsum(values) / len(values)
