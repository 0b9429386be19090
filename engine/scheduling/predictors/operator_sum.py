"""TTFT predictor: the sum of a prefill's operator times, read off a measured profile.

A profile holds, for each operator kind, the seconds of one such operator at several lengths. Between two
measured lengths a time is interpolated; outside of what was measured it is refused, never guessed.
"""

import bisect
import collections.abc as c
import math
from dataclasses import dataclass

from engine.core.batch import Work
from engine.core.clock import NS_PER_S


@dataclass(frozen=True, slots=True)
class OperatorSample:
    """Seconds of one operator of this kind over `new_tokens` after `context_tokens`."""

    operator: str
    new_tokens: int
    context_tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class OperatorCount:
    """How a task uses an operator kind. times: per task (once a layer). per_sequence: its cost is a sum over
    sequences (attention); otherwise it sees all rows of the task at once.
    """

    operator: str
    times: int
    per_sequence: bool = False


def decoder_counts(layers: int) -> tuple[OperatorCount, ...]:
    """Operators of a decoder as the profile names them: five in each layer, the embedding before, the head after."""
    rows = [OperatorCount(name, layers) for name in ("qkv_proj", "o_proj", "gate_up_proj", "down_proj")]
    return (
        OperatorCount("embedding", 1),
        *rows,
        OperatorCount("attention", layers, per_sequence=True),
        OperatorCount("head", 1),
    )


class RangeError(ValueError):
    """A length lies outside the profile."""


class OperatorSumPredictor:
    """Static. Prices a task as the sum over `counts` of times x seconds(operator, rows).

    Operators over all rows depend on the number of rows only. Those per sequence are priced as attention is:
    by the area n (x + (n + 1) / 2) of query-key pairs of n new tokens after x cached ones.
    Raises ValueError where a count has no sample, or a time is not above 0.
    """

    def __init__(self, samples: c.Sequence[OperatorSample], counts: c.Sequence[OperatorCount]) -> None:
        self._counts = tuple(counts)
        self._curves: dict[str, _Curve] = {}
        for count in counts:
            own = [sample for sample in samples if sample.operator == count.operator]
            size = _pairs if count.per_sequence else _rows
            points = {size(sample.new_tokens, sample.context_tokens): sample.seconds for sample in own}
            self._curves[count.operator] = _Curve(count.operator, sorted(points.items()))

    def estimate_ns(self, work: Work) -> int:
        """Raises RangeError for a length that was not measured around."""
        rows = sum(new for new, _ in work.lengths)
        seconds = 0.0
        for count in self._counts:
            curve = self._curves[count.operator]
            if count.per_sequence:
                seconds += count.times * sum(curve.at(_pairs(new, context)) for new, context in work.lengths)
            else:
                seconds += count.times * curve.at(rows)
        return round(seconds * NS_PER_S)

    def observe(self, work: Work, executed_ns: int) -> None:
        """Ignored: the profile is what it is."""


class _Curve:
    """Seconds over a size: straight lines between measured points, made never to fall."""

    def __init__(self, operator: str, points: c.Sequence[tuple[float, float]]) -> None:
        if not points:
            raise ValueError(f"the profile has no times of operator {operator!r}")
        if any(not (seconds > 0 and math.isfinite(seconds)) for _, seconds in points):
            raise ValueError(f"operator {operator!r}: every time must be above 0 s")
        self._operator = operator
        self._sizes = [size for size, _ in points]
        self._seconds: list[float] = []
        for _, seconds in points:
            self._seconds.append(max(seconds, self._seconds[-1]) if self._seconds else seconds)

    def at(self, size: float) -> float:
        if not self._sizes[0] <= size <= self._sizes[-1]:
            raise RangeError(
                f"operator {self._operator!r} was measured from {self._sizes[0]:g} to {self._sizes[-1]:g},"
                f" not at {size:g}"
            )
        right = bisect.bisect_left(self._sizes, size)
        if self._sizes[right] == size:
            return self._seconds[right]
        x0, x1 = self._sizes[right - 1], self._sizes[right]
        y0, y1 = self._seconds[right - 1], self._seconds[right]
        return y0 + (y1 - y0) * (size - x0) / (x1 - x0)


def _rows(new_tokens: int, context_tokens: int) -> float:  # noqa: ARG001 - the context is not computed again
    return float(new_tokens)


def _pairs(new_tokens: int, context_tokens: int) -> float:
    return new_tokens * (context_tokens + (new_tokens + 1) / 2)
