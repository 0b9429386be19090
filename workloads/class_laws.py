"""Length laws of the four request classes of QwenTrace A, minutes 0-2, as quantile tables.

Inputs: knots shaped like the published lengths of the trace, moved so that mean, P99 and standard deviation equal the
class table (paper set-up); between knots the quantile function is a straight line. Outputs: quantiles of the published
output lengths.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class QuantileLaw:
    """A law of whole token counts. knots: (probability, tokens) from 0 to 1, both growing."""

    knots: tuple[tuple[float, float], ...]

    def tokens_at(self, probability: float) -> int:
        """The quantile at `probability` in [0, 1), rounded to a whole token count, at least 1."""
        for (u0, x0), (u1, x1) in pairwise(self.knots):
            if probability <= u1:
                return max(1, round(x0 + (x1 - x0) * (probability - u0) / (u1 - u0)))
        return max(1, round(self.knots[-1][1]))

    def mean(self) -> float:
        """Exact mean of the law before rounding."""
        return sum((u1 - u0) * (x0 + x1) / 2 for (u0, x0), (u1, x1) in self._pieces())

    def std(self) -> float:
        """Exact standard deviation of the law before rounding."""
        second = sum((u1 - u0) * (x0 * x0 + x0 * x1 + x1 * x1) / 3 for (u0, x0), (u1, x1) in self._pieces())
        return float((second - self.mean() ** 2) ** 0.5)

    def _pieces(self) -> Sequence[tuple[tuple[float, float], tuple[float, float]]]:
        return list(pairwise(self.knots))


@dataclass(frozen=True, slots=True)
class ClassLaw:
    """One class: how many of the 327 requests, how long they are, how much they generate."""

    requests: int
    inputs: QuantileLaw
    outputs: QuantileLaw


def _law(probabilities: Sequence[float], *tokens: float) -> QuantileLaw:
    return QuantileLaw(tuple(zip(probabilities, tokens, strict=True)))


_INPUT = (0, 0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.994, 1)
_IMAGE_INPUT = (0, 0.05, 0.25, 0.5, 0.75, 0.9, 0.93, 0.98, 0.99, 0.994, 1)
_OUTPUT = (0, 0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1)

CLASS_LAWS: Mapping[str, ClassLaw] = {
    "text": ClassLaw(
        226,
        inputs=_law(_INPUT, 18, 71, 127, 677, 808, 1056, 1351, 3023, 3256, 3370, 5828),
        outputs=_law(_OUTPUT, 5, 32, 118, 276, 442, 683, 821, 1240, 1982),
    ),
    "image": ClassLaw(
        24,
        inputs=_law(_IMAGE_INPUT, 338, 339, 340, 354, 384, 404, 686, 807, 808, 836, 1000),
        outputs=_law(_OUTPUT, 46, 47, 53, 70, 88, 178, 200, 209, 212),
    ),
    "search": ClassLaw(
        66,
        inputs=_law(_INPUT, 243, 1209, 3048, 4401, 6563, 8163, 11194, 15122, 15127, 15278, 16744),
        outputs=_law(_OUTPUT, 128, 148, 254, 350, 447, 659, 960, 1384, 1488),
    ),
    "file": ClassLaw(
        11,
        inputs=_law(_INPUT, 113, 256, 701, 2870, 7287, 9715, 10552, 10556, 10560, 10666, 10900),
        outputs=_law(_OUTPUT, 288, 321, 415, 701, 821, 931, 954, 973, 978),
    ),
}
