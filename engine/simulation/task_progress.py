"""How far a task has come through its operators, in nanoseconds of execution."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from engine.core.batch import Task
from engine.core.clock import NS_PER_S
from engine.scheduling.predictors.sampled_curve import RangeError
from engine.simulation.timed_program import TimedProgram

LONGEST_NS = 2.0**62
"""146 years: more nanoseconds than these fit no 64 bits."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Where a task stops: before operator `cursor`, after executing for `executed_ns` in all."""

    cursor: int
    executed_ns: int


@dataclass(slots=True, eq=False)
class TaskProgress:
    """A task that was started and is not over.

    ends_ns: execution time after each operator, from the start of the task.
    cursor: the next operator. executed_ns: time executed in all, pauses not counted.
    """

    task: Task
    ends_ns: NDArray[np.int64]
    boundary: NDArray[np.bool_]
    continuous: bool
    cursor: int = 0
    executed_ns: int = 0
    total_ns: int = field(init=False)

    def __post_init__(self) -> None:
        self.total_ns = int(self.ends_ns[-1])

    @staticmethod
    def of(task: Task, program: TimedProgram, seconds: NDArray[np.float64]) -> "TaskProgress":
        """The beginning. seconds: the program's times as this execution will find them.

        Raises ValueError for times that are not above 0 or as many as the places to stop, RangeError (one) for a task
        of centuries.
        """
        if len(seconds) != len(program.boundary) or not len(seconds) or not seconds.min() > 0:
            raise ValueError(f"task {task.task_id}: a program needs operators that each take more than 0 s")
        ends = seconds.cumsum()
        ends *= NS_PER_S
        if not ends[-1] < LONGEST_NS:
            raise RangeError(f"task {task.task_id} would take longer than any clock counts: {seconds.sum():.3g} s")
        ends_ns = np.rint(ends, out=ends).astype(np.int64)
        ends_ns[-1] = max(1, ends_ns[-1])
        return TaskProgress(task, ends_ns, program.boundary, program.continuous)

    @property
    def left_ns(self) -> int:
        """Time to its end."""
        return self.total_ns - self.executed_ns

    def stop_from(self, executed_ns: int) -> Stop | None:
        """Where it stops when it may go on no further once it has executed this long; None = it ends first."""
        if executed_ns >= self.total_ns:
            return None
        if self.continuous:
            return Stop(self.cursor, max(executed_ns, self.executed_ns))
        index = self._operator_from(executed_ns)
        ahead = self.boundary[index:]
        if not len(ahead):
            return None
        index += int(ahead.argmax())
        return Stop(index, self._begins_ns(index)) if self.boundary[index] else None

    def next_operator_ns(self, executed_ns: int) -> int:
        """Execution time at which the first operator begins that begins at this time or later; else the total."""
        index = self._operator_from(executed_ns)
        return self.total_ns if index >= len(self.ends_ns) else self._begins_ns(index)

    def go_to(self, stop: Stop) -> None:
        """It has stopped there."""
        self.cursor, self.executed_ns = stop.cursor, stop.executed_ns

    def _operator_from(self, executed_ns: int) -> int:
        if executed_ns <= self.executed_ns:
            return self.cursor
        return int(self.ends_ns.searchsorted(executed_ns)) + 1

    def _begins_ns(self, index: int) -> int:
        return int(self.ends_ns[index - 1]) if index else 0
