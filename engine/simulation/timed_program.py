"""A task as a device would execute it: the time of each operator, and where it may stop."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class TimedProgram:
    """Undisturbed operator times of one task; their sum is what it takes when nothing disturbs it.

    seconds: of each operator, in order, above 0.
    boundary: whether the task may stop before the operator.
    continuous: it may stop anywhere (a device known only by its total times).
    """

    seconds: NDArray[np.float64]
    boundary: NDArray[np.bool_]
    continuous: bool = False
