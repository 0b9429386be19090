import numpy as np
import pytest

from engine.core.batch import Task
from engine.simulation.devices.curve import CurveDevice
from engine.simulation.settings import SimulationSettings
from engine.simulation.timed_program import TimedProgram
from harness.assembly.predicted_blocking import intervals_s, predicted_blocking_ms


class Steps:
    """Four operators a prompt, a boundary before the second and the fourth; times grow with the prompt."""

    def program(self, task: Task) -> TimedProgram:
        seconds = np.array([1.0, 2.0, 1.0, 4.0]) * task.new_tokens
        return TimedProgram(seconds, np.array([False, True, False, True]))


def test_intervals_lie_between_boundaries_the_start_and_the_end() -> None:
    program = TimedProgram(np.array([1.0, 2.0, 1.0, 4.0]), np.array([False, True, False, True]))
    assert intervals_s(program).tolist() == [1.0, 3.0, 4.0]
    assert intervals_s(TimedProgram(np.array([1.0, 2.0]), np.zeros(2, dtype=bool))).tolist() == [3.0]


def test_the_prediction_is_the_mean_residual_and_the_delays() -> None:
    # prompts of 1, 1 and 2 tokens: squares (1 + 9 + 16) x (1 + 1 + 4) = 156, total 8 x 4 = 32
    settings = SimulationSettings(signal_delay_s=0.25, launch_ahead_s=0.5)
    assert predicted_blocking_ms(Steps(), [1, 2, 1], settings) == pytest.approx(1000 * (156 / 64 + 0.75))
    assert predicted_blocking_ms(Steps(), [], settings) is None


def test_where_a_task_stops_anywhere_only_the_delays_are_left() -> None:
    device = CurveDevice(0.01, 0.001, 0.0)
    assert predicted_blocking_ms(device, [5], SimulationSettings(switch_s=0.0025)) == pytest.approx(2.5)
