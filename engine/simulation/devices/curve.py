"""A device known by the total time of a prefill only: a quadratic curve over its length."""

import math

import numpy as np

from engine.core.batch import Task, TaskKind
from engine.simulation.timed_program import TimedProgram


class CurveDevice:
    """A prefill of n tokens takes t(n) = c0 + c1 n + c2 n^2 seconds and may stop anywhere.

    c0: seconds a task; c1: seconds a token; c2: seconds a token squared.
    n new tokens after x cached ones cost c1 n + c2 ((n + x)^2 - x^2); a batch pays c0 once. A decode step is priced
    the same way, one new token a sequence.
    """

    def __init__(self, c0: float, c1: float, c2: float) -> None:
        for name, value in (("c0", c0), ("c1", c1), ("c2", c2)):
            if not (value >= 0 and math.isfinite(value)):
                raise ValueError(f"the curve's {name} must be 0 or more, got {value}")
        if c0 + c1 + c2 <= 0:
            raise ValueError("the curve is 0 everywhere: c0, c1 or c2 must be above 0")
        self._c0, self._c1, self._c2 = c0, c1, c2

    def program(self, task: Task) -> TimedProgram:
        """One operator, which may stop anywhere. Raises ValueError for a task that sends KV: it is no computation."""
        if task.kind is TaskKind.KV_SEND:
            raise ValueError("a curve device has no time for sending KV")
        seconds = self._c0
        for sequence in task.sequences:
            new, context = sequence.new_tokens, sequence.context_tokens
            end = new + context
            seconds += self._c1 * new + self._c2 * (end * end - context * context)
        return TimedProgram(np.array([seconds]), np.ones(1, dtype=np.bool_), continuous=True)
