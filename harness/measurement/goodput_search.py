"""An adaptive search for the max goodput of a live system, over real-valued rates.

Only VALID measurements steer it, end it or enter its estimate. One that is not is measured again; a rate that gave no
VALID one in `tries` measurements is blocked, and the search goes around it.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from harness.measurement.crossing import TARGET, MaxGoodput, crossing
from harness.measurement.verdict import Verdict


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """How far and how finely to look.

    low, high: the range of rates allowed, any positive numbers (0.01 req/s is a rate like another).
    start: the first rate tried; None = the geometric middle of the range.
    step: factor between rates while the crossing is not bracketed.
    tolerance: stop once the rates on both sides of the crossing differ by no more than this share.
    budget: measurements at most, repeated ones included; one of several seeds counts once.
    tries: measurements at most at a rate of which none is VALID.
    """

    low: float
    high: float
    start: float | None = None
    step: float = 2.0
    tolerance: float = 0.05
    budget: int = 12
    target: float = TARGET
    tries: int = 2

    def __post_init__(self) -> None:
        if not 0 < self.low < self.high < math.inf:
            raise ValueError(f"a search needs 0 < low < high, got low={self.low}, high={self.high}")
        if self.start is not None and not self.low <= self.start <= self.high:
            raise ValueError(f"search start {self.start} lies outside {self.low} ... {self.high}")
        if self.step <= 1:
            raise ValueError(f"search step must be above 1, got {self.step}")
        if self.tolerance <= 0:
            raise ValueError(f"search tolerance must be above 0, got {self.tolerance}")
        for name, count in (("budget", self.budget), ("tries", self.tries)):
            if count < 1:
                raise ValueError(f"search {name} must be at least 1, got {count}")


@dataclass(frozen=True, slots=True)
class Tried:
    """One measurement of the search. Its attainment says nothing unless the verdict is VALID."""

    rate: float
    attainment: float
    verdict: Verdict = Verdict.VALID


class Stopped(StrEnum):
    """Why a search ended."""

    CONVERGED = "converged"
    RANGE = "range"  # an end of the range allowed does not bracket the crossing: the estimate is a bound
    BUDGET = "budget"
    BLOCKED = "blocked"  # rates that give no VALID measurement are in the way; see `limit`


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Every point tried, in order of trial, and what they say together. max_goodput: None without a VALID one."""

    tried: tuple[Tried, ...]
    max_goodput: MaxGoodput | None
    stopped: Stopped


def search(measure: Callable[[float], Tried], settings: SearchSettings) -> SearchResult:
    """Find the max goodput by measuring attainment (0 ... 1) at one rate after another.

    Brackets the crossing in geometric steps, then halves the bracket geometrically. What `measure`
    raises ends the search.
    """
    tried: list[Tried] = []
    while (rate := next_rate(tried, settings)) is not None:
        tried.append(measure(rate))
    return SearchResult(tuple(tried), estimate(tried, settings.target), stopped(tried, settings))


def next_rate(tried: Sequence[Tried], settings: SearchSettings) -> float | None:
    """The next rate worth measuring after these; None = the search is over. For callers that measure in their own way.

    A rate with several VALID measurements counts by their mean, so that a caller may repeat.
    """
    if len(tried) >= settings.budget:
        return None
    if not tried:
        return math.sqrt(settings.low * settings.high) if settings.start is None else settings.start
    not_valid = _not_valid(tried)
    again = [rate for rate, verdicts in not_valid.items() if len(verdicts) < settings.tries]
    if again:
        return again[0]
    met, missed = _bracket(tried, settings.target)
    blocked = sorted(not_valid)
    if missed is None and met is not None:
        above = [rate for rate in blocked if rate > met]
        if above:
            return _between([met, above[0]], settings.tolerance)
        return None if _at(met, settings.high) else min(met * settings.step, settings.high)
    if met is not None and missed is not None:
        return _between([met, *(rate for rate in blocked if met < rate < missed), missed], settings.tolerance)
    known = [rate for rate in blocked if missed is None or rate < missed] + ([] if missed is None else [missed])
    if not _at(known[0], settings.low):
        return max(known[0] / settings.step, settings.low)
    return None if missed is None else _between(known[-2:], settings.tolerance)


def estimate(tried: Sequence[Tried], target: float = TARGET) -> MaxGoodput | None:
    """Max goodput of the VALID points tried, by the isotonic fit as for any other set of rates; None without one."""
    means = _means(tried)
    return crossing(list(means), list(means.values()), target) if means else None


def stopped(tried: Sequence[Tried], settings: SearchSettings) -> Stopped:
    """Why the search ended that tried these."""
    met, missed = _bracket(tried, settings.target)
    if met is not None and missed is not None and missed <= met * (1 + settings.tolerance):
        return Stopped.CONVERGED
    top = missed is None and met is not None and _at(met, settings.high)
    bottom = met is None and missed is not None and _at(missed, settings.low)
    if top or bottom:
        return Stopped.RANGE
    return Stopped.BUDGET if len(tried) >= settings.budget else Stopped.BLOCKED


def limit(tried: Sequence[Tried], target: float = TARGET) -> Tried | None:
    """The measurement that keeps the search from bracketing the crossing: the last one at the nearest rate beyond the
    bound that gave no VALID one. None where the crossing is bracketed, or nothing was in the way."""
    met, missed = _bracket(tried, target)
    not_valid = sorted(_not_valid(tried))
    if met is not None and missed is not None:
        return None
    if missed is not None:
        beyond = [rate for rate in not_valid if rate < missed][-1:]
    else:
        beyond = [rate for rate in not_valid if met is None or rate > met][:1]
    return next((one for one in reversed(tried) if one.rate in beyond), None)


def together(by_seed: Sequence[Sequence[Tried]]) -> list[Tried]:
    """What several seeds' measurements at one rate say, in order of trial: VALID, by their mean, once all seeds are.

    by_seed: each seed's measurements in order of trial, one at least. A seed that has a VALID one keeps it while others
    are measured again.
    """
    found = []
    for number in range(max(len(one) for one in by_seed)):
        latest = [one[min(number, len(one) - 1)] for one in by_seed]
        in_the_way = [one for one in latest if one.verdict is not Verdict.VALID]
        mean = math.fsum(one.attainment for one in latest) / len(latest)
        found.append(in_the_way[0] if in_the_way else Tried(latest[0].rate, mean))
    return found


def _means(tried: Sequence[Tried]) -> dict[float, float]:
    """Mean attainment of the VALID measurements by rate, in order of rate."""
    valid = [one for one in tried if one.verdict is Verdict.VALID]
    return {
        rate: math.fsum(values) / len(values)
        for rate in sorted({one.rate for one in valid})
        for values in [[one.attainment for one in valid if one.rate == rate]]
    }


def _not_valid(tried: Sequence[Tried]) -> dict[float, list[Verdict]]:
    """The verdicts at each rate without a VALID one, in order of trial."""
    valid = _means(tried)
    found: dict[float, list[Verdict]] = {}
    for one in tried:
        if one.rate not in valid:
            found.setdefault(one.rate, []).append(one.verdict)
    return found


def _bracket(tried: Sequence[Tried], target: float) -> tuple[float | None, float | None]:
    """The highest rate below the first miss that met the target, and that first miss."""
    means = _means(tried)
    missed = min((rate for rate, value in means.items() if value < target), default=None)
    below = [rate for rate in means if missed is None or rate < missed]
    return max(below, default=None), missed


def _between(rates: Sequence[float], tolerance: float) -> float | None:
    """The geometric middle of the widest gap between neighbours (the lowest of equals); None where all are narrow."""
    gaps = [(high / low, low, high) for low, high in itertools.pairwise(rates)]
    if not gaps:
        return None
    # A hair does not decide which of two gaps is the wider.
    ratio, low, high = max(gaps, key=lambda gap: (round(gap[0], 6), -gap[1]))
    return None if ratio <= 1 + tolerance else math.sqrt(low * high)


def _at(rate: float, end: float) -> bool:
    """Whether the end of the range was reached; a caller may have rounded the rate it was told."""
    return abs(rate - end) <= 1e-3 * end
