"""TTFT predictor: the sum of a prefill's operator times, read off a measured profile.

A profile holds, for each operator kind, the seconds of one such operator at several lengths. Between two
measured lengths a time is interpolated; outside of what was measured it is refused, never guessed.
"""

import collections.abc as c
import itertools
from dataclasses import dataclass

from engine.core.batch import Work
from engine.core.clock import NS_PER_S
from engine.scheduling.predictors.attention_curve import AttentionCurve
from engine.scheduling.predictors.sampled_curve import SampledCurve


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


def decoder_counts(layers: int, measured: c.Collection[str] = ()) -> tuple[OperatorCount, ...]:
    """Operators of a decoder in order, as the profile names them: the embedding, five or so in each layer, the head.

    measured: kinds the profile has; with `experts` among them the decoder is a mixture of experts.
    """
    mlp_half = ("router", "experts") if "experts" in measured else ("gate_up_proj", "down_proj")
    return (
        OperatorCount("embedding", 1),
        OperatorCount("qkv_proj", layers),
        OperatorCount("attention", layers, per_sequence=True),
        *(OperatorCount(name, layers) for name in ("o_proj", *mlp_half)),
        OperatorCount("head", 1),
    )


class OperatorSumPredictor:
    """Static. Prices a task as the sum over `counts` of times x seconds(operator, rows); of a partly executed one, over
    the operators that are left.

    counts: in the order a task runs them; neighbours of the same `times` make up a layer that is run so many times.
    Operators over all rows depend on the number of rows only, and are read at samples without cached tokens. Those per
    sequence are priced as attention is (`AttentionCurve`): a later chunk at its true position.
    Raises ValueError where a count has no sample, or a time is not above 0.
    """

    def __init__(self, samples: c.Sequence[OperatorSample], counts: c.Sequence[OperatorCount]) -> None:
        self._counts = tuple(counts)
        self._by_rows: dict[str, SampledCurve] = {}
        self._by_sequence: dict[str, AttentionCurve] = {}
        for count in counts:
            own = [sample for sample in samples if sample.operator == count.operator]
            if count.per_sequence:
                lengths = [(sample.new_tokens, sample.context_tokens, sample.seconds) for sample in own]
                self._by_sequence[count.operator] = AttentionCurve(count.operator, lengths)
            else:
                points = {float(sample.new_tokens): sample.seconds for sample in own}
                self._by_rows[count.operator] = SampledCurve(count.operator, sorted(points.items()))

    def estimate_ns(self, work: Work) -> int:
        """Raises RangeError for a length that was not measured around."""
        rows = sum(new for new, _ in work.lengths)
        seconds = 0.0
        for count, times in zip(self._counts, self._left(work.operators_done), strict=True):
            if count.per_sequence:
                attention = self._by_sequence[count.operator]
                seconds += times * sum(attention.at(new, context) for new, context in work.lengths)
            else:
                seconds += times * self._by_rows[count.operator].at(rows)
        return round(seconds * NS_PER_S)

    def _left(self, done: int) -> list[int]:
        """How often each of `counts` is still run after the first `done` operators."""
        left: list[int] = []
        for times, group in itertools.groupby(self._counts, key=lambda count: count.times):
            size = len(list(group))
            rounds, within = divmod(min(done, times * size), size)
            left += [times - rounds - (position < within) for position in range(size)]
            done = max(0, done - times * size)
        return left

    def observe(self, work: Work, executed_ns: int) -> None:
        """Ignored: the profile is what it is."""
