"""An adaptive search for the max goodput of a live system, over real-valued rates."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from harness.measurement.crossing import TARGET, MaxGoodput, crossing


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """How far and how finely to look.

    low, high: the range of rates allowed, any positive numbers (0.01 req/s is a rate like another).
    start: the first rate tried; None = the geometric middle of the range.
    step: factor between rates while the crossing is not bracketed.
    tolerance: stop once the rates on both sides of the crossing differ by no more than this share.
    budget: measurements at most.
    """

    low: float
    high: float
    start: float | None = None
    step: float = 2.0
    tolerance: float = 0.05
    budget: int = 12
    target: float = TARGET

    def __post_init__(self) -> None:
        if not 0 < self.low < self.high < math.inf:
            raise ValueError(f"a search needs 0 < low < high, got low={self.low}, high={self.high}")
        if self.start is not None and not self.low <= self.start <= self.high:
            raise ValueError(f"search start {self.start} lies outside {self.low} ... {self.high}")
        if self.step <= 1:
            raise ValueError(f"search step must be above 1, got {self.step}")
        if self.tolerance <= 0:
            raise ValueError(f"search tolerance must be above 0, got {self.tolerance}")
        if self.budget < 1:
            raise ValueError(f"search budget must be at least 1, got {self.budget}")


@dataclass(frozen=True, slots=True)
class Tried:
    """One measurement of the search."""

    rate: float
    attainment: float


class Stopped(StrEnum):
    """Why a search ended."""

    CONVERGED = "converged"
    RANGE = "range"  # an end of the range allowed does not bracket the crossing: the estimate is a bound
    BUDGET = "budget"


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Every point tried, in order of trial, and what they say together."""

    tried: tuple[Tried, ...]
    max_goodput: MaxGoodput
    stopped: Stopped


def search(measure: Callable[[float], float], settings: SearchSettings) -> SearchResult:
    """Find the max goodput by measuring attainment (0 ... 1) at one rate after another.

    Brackets the crossing in geometric steps, then halves the bracket geometrically. What `measure`
    raises ends the search.
    """
    tried: list[Tried] = []
    while (rate := next_rate(tried, settings)) is not None:
        tried.append(Tried(rate, measure(rate)))
    return SearchResult(tuple(tried), estimate(tried, settings.target), _stopped(tried, settings))


def next_rate(tried: Sequence[Tried], settings: SearchSettings) -> float | None:
    """The next rate worth measuring after these; None = the search is over. For callers that measure in their own way.

    A rate tried twice counts by its mean, so that a caller may repeat.
    """
    if len(tried) >= settings.budget:
        return None
    if not tried:
        return math.sqrt(settings.low * settings.high) if settings.start is None else settings.start
    met, missed = _bracket(tried, settings.target)
    if missed is None:
        assert met is not None  # something was tried
        return None if _at(met, settings.high) else min(met * settings.step, settings.high)
    if met is None:
        return None if _at(missed, settings.low) else max(missed / settings.step, settings.low)
    return None if missed <= met * (1 + settings.tolerance) else math.sqrt(met * missed)


def estimate(tried: Sequence[Tried], target: float = TARGET) -> MaxGoodput:
    """Max goodput of the points tried, by the isotonic fit as for any other set of rates."""
    means = _means(tried)
    return crossing(list(means), list(means.values()), target)


def _means(tried: Sequence[Tried]) -> dict[float, float]:
    """Mean attainment by rate, in order of rate."""
    return {
        rate: math.fsum(values) / len(values)
        for rate in sorted({t.rate for t in tried})
        for values in [[t.attainment for t in tried if t.rate == rate]]
    }


def _bracket(tried: Sequence[Tried], target: float) -> tuple[float | None, float | None]:
    """The highest rate below the first miss that met the target, and that first miss."""
    means = _means(tried)
    missed = min((rate for rate, value in means.items() if value < target), default=None)
    below = [rate for rate in means if missed is None or rate < missed]
    return max(below, default=None), missed


def _stopped(tried: Sequence[Tried], settings: SearchSettings) -> Stopped:
    met, missed = _bracket(tried, settings.target)
    if met is not None and missed is not None and missed <= met * (1 + settings.tolerance):
        return Stopped.CONVERGED
    top = missed is None and met is not None and _at(met, settings.high)
    bottom = met is None and missed is not None and _at(missed, settings.low)
    return Stopped.RANGE if top or bottom else Stopped.BUDGET


def _at(rate: float, end: float) -> bool:
    """Whether the end of the range was reached; a caller may have rounded the rate it was told."""
    return abs(rate - end) <= 1e-3 * end
