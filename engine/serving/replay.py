"""The command `python -m engine.serving.replay LOG`: does a fresh scheduler decide as the logged run did?

Exit status: 0 the same commands at every call, 1 a difference (it is shown), 2 not a decision log.
"""

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch

from engine.core.batch import Task
from engine.model.activation import activation_bytes
from engine.model.catalogue import load_shape
from engine.model.shape import ModelLoadError, ModelShape
from engine.scheduling.decision_log import DecisionLogError, Difference, read, replay
from engine.scheduling.scheduler import Scheduler
from engine.serving.scheduler_recipe import SchedulerRecipe
from engine.serving.settings import SettingsError


def replay_file(path: Path) -> tuple[int, Difference | None]:
    """Number of calls answered as in the run, and the first answered otherwise. Needs the shape of the run's model.

    Raises DecisionLogError, SettingsError, ModelLoadError or OSError with one sentence.
    """
    with path.open(encoding="utf-8") as lines:
        settings, calls = read(lines)
        try:
            recipe = SchedulerRecipe.from_json(settings)
        except (KeyError, TypeError) as error:
            raise DecisionLogError(f"line 1: not the settings of an engine of this version ({error!r})") from error
        shape = load_shape(recipe.settings.model)
        element_bytes = getattr(torch, recipe.dtype).itemsize
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay one log."""
    parser = argparse.ArgumentParser(prog="python -m engine.serving.replay", description=__doc__)
    parser.add_argument("log", type=Path, help="file written by the server's --decision-log")
    path: Path = parser.parse_args(arguments).log
    try:
        calls, difference = replay_file(path)
    except OSError as error:
        print(f"replay: {path}: {error.strerror}", file=sys.stderr)
        return 2
    except (DecisionLogError, SettingsError, ModelLoadError) as error:
        print(f"replay: {path}: {error}", file=sys.stderr)
        return 2
    if difference is not None:
        print(f"call {difference.call} (from 0) differs:")
        print(f"  logged   {difference.logged}\n  replayed {difference.replayed}")
        return 1
    print(f"{calls} calls replayed, all with the same commands")
    return 0


if __name__ == "__main__":
    sys.exit(main())
