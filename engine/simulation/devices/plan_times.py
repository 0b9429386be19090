"""From a task's plan and the time of each of its operators to a timed program."""

from collections.abc import Callable

import numpy as np

from engine.model.operators import PlannedOperator, PrefillPlan
from engine.simulation.timed_program import TimedProgram

HALF_ENDS = ("o_proj", "down_proj", "experts")
"""Kinds that end a half of a layer."""


def timed(
    plan: PrefillPlan,
    seconds_of: Callable[[PlannedOperator], float],
    step_overhead_s: float = 0.0,
    half_layer_sync_s: float = 0.0,
) -> TimedProgram:
    """A layer is priced once and repeated.

    step_overhead_s: added to the first operator. half_layer_sync_s: added to the last tile that ends a half of a layer.
    """
    layer = []
    for operator in plan.layer:
        ends_half = operator.kind in HALF_ENDS and operator.tile == operator.tiles - 1
        layer.append(seconds_of(operator) + (half_layer_sync_s if ends_half else 0.0))
    first = [seconds_of(operator) for operator in plan.first]
    first[0] += step_overhead_s
    seconds = np.concatenate((first, np.tile(layer, plan.layers), [seconds_of(operator) for operator in plan.last]))
    boundary = np.concatenate(
        (
            [operator.boundary for operator in plan.first],
            np.tile([operator.boundary for operator in plan.layer], plan.layers),
            np.array([operator.boundary for operator in plan.last], dtype=np.bool_),
        )
    )
    # Programs are kept and shared: nobody may write into them.
    seconds.flags.writeable = boundary.flags.writeable = False
    return TimedProgram(seconds, boundary)
