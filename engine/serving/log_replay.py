"""A decision log file against a fresh scheduler made from the settings it begins with. Needs no torch."""

import dataclasses
from functools import partial
from pathlib import Path

from engine.core.batch import Task
from engine.model.activation import ELEMENT_BYTES, activation_bytes
from engine.model.catalogue import load_shape
from engine.model.shape import ModelShape
from engine.scheduling.decision_log import DecisionLogError, Difference, read, replay
from engine.scheduling.scheduler import Scheduler
from engine.serving.scheduler_recipe import SchedulerRecipe


def replay_file(path: Path) -> tuple[int, Difference | None]:
    """Number of calls answered as in the run, and the first answered otherwise. Needs the shape of the run's model.

    Raises DecisionLogError, SettingsError, ModelLoadError or OSError with one sentence.
    """
    with path.open(encoding="utf-8") as lines:
        settings, calls = read(lines)
        try:
            recipe = SchedulerRecipe.from_json(settings)
            element_bytes = ELEMENT_BYTES[recipe.dtype]
        except (KeyError, TypeError) as error:
            raise DecisionLogError(f"line 1: not the settings of an engine of this version ({error!r})") from error
        shape = load_shape(recipe.settings.model)
        scheduler = recipe.build(Scheduler, partial(_activation_bytes, shape, element_bytes))
        number = 0
        for call in calls:
            # Stop at the first: the events after it are answers to other commands.
            for found in replay((call,), scheduler):
                return number, dataclasses.replace(found, call=number)
            number += 1
    return number, None


def _activation_bytes(shape: ModelShape, element_bytes: int, task: Task) -> int:
    return activation_bytes(shape, task, element_bytes)
