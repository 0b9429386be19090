"""A policy's predictions made wrong on purpose, for experiments on what a wrong TTFT prediction costs."""

import hashlib
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass

from engine.core.batch import Task, Work
from engine.core.ports import Batching, Policy, Predictor
from engine.scheduling.scheduler import Scheduler, SchedulerSettings


@dataclass(frozen=True, slots=True)
class PredictorError:
    """Log-normal factors of mean 1 and coefficient of variation `cv`, one for each work; the same work, the same."""

    cv: float
    seed: int

    def factor(self, work: Work) -> float:
        """A function of the work and the seed alone: no state, whatever order things are asked in."""
        digest = hashlib.blake2b(repr((self.seed, work.lengths)).encode(), digest_size=16).digest()
        first, second = struct.unpack("<QQ", digest)
        radius = math.sqrt(-2 * math.log((first + 1) / 2**64))
        normal = radius * math.cos(2 * math.pi * second / 2**64)
        variance = math.log1p(self.cv * self.cv)
        return math.exp(math.sqrt(variance) * normal - variance / 2)


class ErringPredictor:
    """Another predictor's estimates times the error's factor."""

    def __init__(self, inner: Predictor, error: PredictorError) -> None:
        self._inner = inner
        self._error = error

    def estimate_ns(self, work: Work) -> int:
        """Wrong by the factor of this work."""
        return round(self._inner.estimate_ns(work) * self._error.factor(work))

    def observe(self, work: Work, executed_ns: int) -> None:
        """Passed on."""
        self._inner.observe(work, executed_ns)


def scheduler_with(error: PredictorError | None) -> type[Scheduler]:
    """The scheduler, its predictions wrong by `error`; a type, as `SchedulerRecipe.build` wants it."""
    if error is None or error.cv == 0:
        return Scheduler
    wrong = error

    class MisledScheduler(Scheduler):
        """Decides as ever, on wrong predictions."""

        def __init__(
            self,
            policy: Policy,
            batching: Batching,
            predictor: Predictor,
            settings: SchedulerSettings,
            activation_bytes: Callable[[Task], int],
        ) -> None:
            super().__init__(policy, batching, ErringPredictor(predictor, wrong), settings, activation_bytes)

    return MisledScheduler
