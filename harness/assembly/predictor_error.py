"""A scheduler whose predictions are wrong on purpose, for experiments on what a wrong TTFT prediction costs."""

from collections.abc import Callable

from engine.core.batch import Task
from engine.core.ports import Batching, Policy, Predictor
from engine.scheduling.scheduler import Scheduler, SchedulerSettings
from engine.simulation.disturbance import ErringPredictor


def scheduler_with_error(cv: float, seed: int) -> type[Scheduler]:
    """A type, as `SchedulerRecipe.build` wants it. cv: of the predictions' error, 0 = none; see ErringPredictor."""
    if cv == 0:
        return Scheduler

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
            super().__init__(policy, batching, ErringPredictor(predictor, cv, seed), settings, activation_bytes)

    return MisledScheduler
