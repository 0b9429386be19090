"""The mean blocking time that pauses at random instants should see: the wait for the next boundary, and the delays."""

from collections import Counter
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from engine.simulation.device import DeviceModel
from engine.simulation.settings import SimulationSettings
from engine.simulation.timed_program import TimedProgram
from harness.assembly.simulated_timings import prefill_task


def predicted_blocking_ms(device: DeviceModel, lengths: Iterable[int], settings: SimulationSettings) -> float | None:
    """sum(t^2) / (2 sum t) over the times t between two boundaries of these prompts' prefills, each prefilled alone,
    plus what every pause waits for besides: the round, the signal, work launched ahead, the switch. In ms.

    lengths: tokens as sent. None without prompts.
    """
    squares = total = 0.0
    for tokens, times in sorted(Counter(lengths).items()):
        program = device.program(prefill_task(tokens))
        gaps = intervals_s(program)
        squares += times * float((gaps * gaps).sum())
        total += times * float(program.seconds.sum())
    if total <= 0:
        return None
    delays_s = settings.round_s + settings.signal_delay_s + settings.launch_ahead_s + settings.switch_s
    return 1e3 * (squares / (2 * total) + delays_s)


def intervals_s(program: TimedProgram) -> NDArray[np.float64]:
    """Execution times between one possible stop and the next; none where the task may stop anywhere."""
    if program.continuous:
        return np.zeros(0)
    starts = np.flatnonzero(program.boundary)
    return np.add.reduceat(program.seconds, np.union1d([0], starts))
