"""The polynomial TTFT predictor of engine.scheduling, fitted to the server's own steps."""

from engine.core.batch import Work
from engine.core.clock import NS_PER_S
from engine.scheduling.predictors.polynomial import PolynomialPredictor, PrefillSample, fit

KEPT_PER_SIZE = 4
"""Samples kept for each power of two of the tokens a step computed."""
FEWEST = 6


class LearnedPredictor:
    """Estimates 0 until it has seen a few steps of one prefill each: order is then by deadline alone."""

    def __init__(self) -> None:
        self._samples: dict[tuple[int, int], list[PrefillSample]] = {}
        self._fitted: PolynomialPredictor | None = None
        self._stale = False
        self._seen = 0

    def estimate_ns(self, work: Work) -> int:
        """By the latest fit, made when it is first asked for: a server with nothing to order never pays for one."""
        if self._stale:
            self._stale = False
            self._fitted = fit([sample for of_size in self._samples.values() for sample in of_size])
        return 0 if self._fitted is None else self._fitted.estimate_ns(work)

    def observe(self, work: Work, executed_ns: int) -> None:
        """Keep a step that computed one prefill; fit again while there are few samples, then after every eighth."""
        if len(work.lengths) != 1 or executed_ns <= 0:
            return
        new, context = work.lengths[0]
        kept = self._samples.setdefault((new.bit_length(), context.bit_length()), [])
        kept.append(PrefillSample(new, context, executed_ns / NS_PER_S))
        del kept[:-KEPT_PER_SIZE]
        self._seen += 1
        if sum(map(len, self._samples.values())) >= FEWEST and (self._seen < 32 or self._seen % 8 == 0):
            self._stale = True
