"""Mean blocking of a pause at a random instant: sum(t^2) / (2 sum t) over operator times t, plus what delays it."""

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest

from engine.core.batch import Task
from engine.core.clock import NS_PER_S
from engine.core.slo import SLO
from engine.scheduling.batching import NoBatching
from engine.scheduling.policies.edf import EDF
from engine.scheduling.scheduler import Scheduler
from engine.simulation.run import SimulatedRequest, simulate
from engine.simulation.settings import SimulationSettings
from engine.simulation.timed_program import TimedProgram
from tests.scheduling.rig import SETTINGS, TokenPredictor, rows

LAYER_MS = np.array([2.0, 3.0, 1.0, 8.0, 4.0])
URGENT = 1500
GAP_S = 0.4  # many layers: the phase within a layer is anybody's guess
LAYERS = int(1.3 * URGENT * GAP_S / (LAYER_MS.sum() / 1000))


class LayeredDevice:
    """One endless prompt of many layers; the others take 10 us."""

    def __init__(self, every: int) -> None:
        """every: operators between two boundaries."""
        self._long = np.tile(LAYER_MS / 1000, LAYERS)
        self._boundary = np.arange(len(self._long)) % every == 0

    def program(self, task: Task) -> TimedProgram:
        if task.new_tokens > 1:
            return TimedProgram(self._long, self._boundary)
        return TimedProgram(np.array([1e-5]), np.ones(1, dtype=bool))


def requests() -> Iterator[SimulatedRequest]:
    yield SimulatedRequest("long", 0, 1000, 1, SLO(10**6 * NS_PER_S))
    at_s = 1 + np.random.default_rng(11).exponential(GAP_S, URGENT).cumsum()
    for place, at in enumerate(at_s):
        yield SimulatedRequest(f"r{place}", int(at * NS_PER_S), 1, 1, SLO(NS_PER_S))


def mean_blocking_ms(every: int, settings: SimulationSettings) -> float:
    limits = dataclasses.replace(SETTINGS, max_context_tokens=2000)
    scheduler = Scheduler(EDF(), NoBatching(), TokenPredictor(), limits, rows)
    report = simulate(requests(), scheduler, LayeredDevice(every), settings).report
    assert len(report.blocking_ns) > 0.95 * URGENT
    assert report.preemptions == len(report.blocking_ns)
    return float(np.mean(report.blocking_ns)) / 1e6


def expected_ms(times: np.ndarray) -> float:
    return float((times**2).sum() / (2 * times.sum()))


@pytest.mark.parametrize(
    ("every", "times"), [(1, LAYER_MS), (5, LAYER_MS.sum(keepdims=True))], ids=["operator", "layer"]
)
def test_blocking_is_the_mean_residual_of_an_operator(every: int, times: np.ndarray) -> None:
    # 1500 samples: one standard error is about 2 %.
    assert mean_blocking_ms(every, SimulationSettings()) == pytest.approx(expected_ms(times), rel=0.05)


def test_delays_come_on_top() -> None:
    settings = SimulationSettings(signal_delay_s=0.0007, launch_ahead_s=0.0011, round_s=0.0002, switch_s=0.0005)
    assert mean_blocking_ms(1, settings) == pytest.approx(expected_ms(LAYER_MS) + 2.5, rel=0.05)


def test_noise_adds_the_variance_of_the_operators() -> None:
    """E[t^2] grows by 1 + cv^2; one standard error is nearly 3 %."""
    noisy = mean_blocking_ms(1, SimulationSettings(noise_cv=0.5, noise_seed=1))
    assert noisy == pytest.approx(expected_ms(LAYER_MS) * 1.25, rel=0.08)
