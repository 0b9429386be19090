"""Seconds of attention over new and cached tokens, read off measured points."""

import collections.abc as c
import statistics
from collections import defaultdict

from engine.scheduling.predictors.sampled_curve import SampledCurve

LEAST_S = 1e-9
"""What cached tokens take at least where the profile's noise says that they take nothing."""


class AttentionCurve:
    """What new tokens take among themselves, and what they take over the cached ones before them; both by their
    query-key pairs. The second grows straight from nothing to the first measured one; past the last one, all pairs are
    read off what tokens take among themselves.

    points: (new tokens, cached tokens, seconds). Raises ValueError where none has 0 cached tokens.
    """

    def __init__(self, operator: str, points: c.Sequence[tuple[int, int, float]]) -> None:
        alone = _means((_own_pairs(new), seconds) for new, cached, seconds in points if not cached)
        self._own = SampledCurve(operator, alone)
        shortest, longest = alone[0][0], alone[-1][0]
        after = _means(
            (new * cached, max(LEAST_S, seconds - self._own.at(_own_pairs(new))))
            for new, cached, seconds in points
            if cached and shortest <= _own_pairs(new) <= longest
        )
        self._first_pairs, self._last_pairs = (after[0][0], after[-1][0]) if after else (0.0, 0.0)
        self._before = SampledCurve(operator, after) if after else None

    def at(self, new: int, cached: int) -> float:
        """Raises RangeError for lengths that were not measured around."""
        pairs = new * cached
        if self._before is None or pairs > self._last_pairs:
            return self._own.at(_own_pairs(new) + pairs)
        own_s = self._own.at(_own_pairs(new))
        if pairs < self._first_pairs:
            return own_s + self._before.at(self._first_pairs) * pairs / self._first_pairs
        return own_s + self._before.at(pairs)


def _own_pairs(new: int) -> float:
    return new * (new + 1) / 2


def _means(points: c.Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """One point a size, sizes rising."""
    by_size: dict[float, list[float]] = defaultdict(list)
    for size, seconds in points:
        by_size[size].append(seconds)
    return [(size, statistics.fmean(by_size[size])) for size in sorted(by_size)]
