"""From a task's plan and the time of each of its operators to a timed program."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from engine.model.operators import PlannedOperator, PrefillPlan
from engine.simulation.timed_program import TimedProgram

Kind = TypeVar("Kind", np.float64, np.bool_)

HALF_ENDS = ("o_proj", "down_proj", "experts")
"""Kinds that end a half of a layer."""
LAYER_ENDS = ("down_proj", "experts")


def timed(
    plan: PrefillPlan,
    seconds_of: Callable[[PlannedOperator], float],
    step_overhead_s: float = 0.0,
    sync_s: float = 0.0,
    sync_after: Sequence[str] = HALF_ENDS,
) -> TimedProgram:
    """A layer is priced once and repeated.

    step_overhead_s: added to the first operator. sync_s: added to the last tile of each kind in sync_after.
    """
    layer = [seconds_of(operator) for operator in plan.layer]
    if sync_s:
        for index, operator in enumerate(plan.layer):
            if operator.kind in sync_after and operator.tile == operator.tiles - 1:
                layer[index] += sync_s
    first = [seconds_of(operator) for operator in plan.first]
    first[0] += step_overhead_s
    seconds = _in_order(first, layer, plan.layers, [seconds_of(operator) for operator in plan.last], np.float64)
    seconds.flags.writeable = False  # programs are kept and shared
    return TimedProgram(seconds, _boundaries(_stops(plan.first), _stops(plan.layer), plan.layers, _stops(plan.last)))


def _stops(operators: tuple[PlannedOperator, ...]) -> tuple[bool, ...]:
    return tuple([operator.boundary for operator in operators])


@lru_cache(64)
def _boundaries(
    first: tuple[bool, ...], layer: tuple[bool, ...], layers: int, last: tuple[bool, ...]
) -> NDArray[np.bool_]:
    """Without tiles these are the same for nearly all tasks."""
    boundary = _in_order(first, layer, layers, last, np.bool_)
    boundary.flags.writeable = False
    return boundary


def _in_order(
    first: Sequence[float], layer: Sequence[float], layers: int, last: Sequence[float], kind: type[Kind]
) -> NDArray[Kind]:
    ordered = np.empty(len(first) + layers * len(layer) + len(last), dtype=kind)
    start, stop = len(first), len(ordered) - len(last)
    ordered[:start] = first
    ordered[start:stop].reshape(layers, len(layer))[:] = layer
    ordered[stop:] = last
    return ordered
