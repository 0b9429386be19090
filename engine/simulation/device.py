"""The seam to a device model: the world's true times, apart from what a policy's predictor believes."""

from typing import Protocol

from engine.core.batch import Task
from engine.simulation.timed_program import TimedProgram


class DeviceModel(Protocol):
    """What tasks take on one device. Pure: the same lengths, the same times."""

    def program(self, task: Task) -> TimedProgram:
        """The undisturbed operator times of a task, prefill or decode step.

        Raises ValueError for a task the model knows no times of (an operator that was not measured, a length
        outside of what was): never a guess.
        """
        ...
