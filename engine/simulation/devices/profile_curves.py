"""Operator times read off a measured profile; what was not measured is refused."""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence

from engine.model.operators import PlannedOperator
from engine.scheduling.predictors.operator_sum import OperatorSample
from engine.scheduling.predictors.sampled_curve import RangeError, SampledCurve


class ProfileCurves:
    """Undisturbed seconds of single operators.

    Operators over rows depend on the number of rows alone. The head was measured for one sequence among so many rows
    and is charged once a task. Attention of n rows after x cached tokens is what n rows take among themselves plus what
    they take over the n x pairs before them, both read by their query-key pairs; the second grows straight from nothing
    to the first measured one.
    Raises ValueError for a kind without samples, and where attention after cached tokens is no slower than after none.
    """

    def __init__(self, samples: Sequence[OperatorSample], kinds: Iterable[str]) -> None:
        self._curves: dict[str, SampledCurve] = {}
        for kind in kinds:
            own = [s for s in samples if s.operator == kind and (kind != "attention" or s.context_tokens == 0)]
            if not own:
                raise ValueError(f"the profile has no times of operator {kind!r}")
            if kind == "attention":
                points = _means((_own_pairs(s.new_tokens), s.seconds) for s in own)
                self._own_curve = SampledCurve("attention (query-key pairs)", points)
            else:
                self._curves[kind] = SampledCurve(kind, _means((s.new_tokens, s.seconds) for s in own))
        after = [s for s in samples if s.operator == "attention" and s.context_tokens > 0]
        self._first_pairs, self._before = 0.0, None
        if after:
            points = _means((s.new_tokens * s.context_tokens, s.seconds - self._own(s.new_tokens)) for s in after)
            if points[0][1] <= 0:
                raise ValueError("operator 'attention' was measured no slower after cached tokens than after none")
            self._first_pairs, self._before = points[0][0], SampledCurve("attention (pairs with cached tokens)", points)

    def seconds(self, operator: PlannedOperator, task_rows: int) -> float:
        """Raises RangeError for a length that was not measured around."""
        if operator.kind == "attention":
            return sum(
                self._attention(stop - first, segment.context_tokens + first) for segment, first, stop in operator.spans
            )
        rows = task_rows if operator.kind == "head" else operator.stop_row - operator.first_row
        return self._curves[operator.kind].at(rows)

    def _attention(self, rows: int, context_tokens: int) -> float:
        if context_tokens == 0:
            return self._own(rows)
        if self._before is None:
            raise RangeError("operator 'attention' was not measured after cached tokens")
        pairs = rows * context_tokens
        if pairs < self._first_pairs:
            before = self._before.at(self._first_pairs) * pairs / self._first_pairs
        else:
            before = self._before.at(pairs)
        return self._own(rows) + before

    def _own(self, rows: int) -> float:
        return self._own_curve.at(_own_pairs(rows))


def _own_pairs(rows: int) -> float:
    """Query-key pairs of rows among themselves."""
    return rows * (rows + 1) / 2


def _means(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """One point a size, sizes rising."""
    by_size: dict[float, list[float]] = defaultdict(list)
    for size, seconds in points:
        by_size[size].append(seconds)
    return [(size, statistics.fmean(by_size[size])) for size in sorted(by_size)]
