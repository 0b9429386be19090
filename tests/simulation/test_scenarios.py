"""The scenarios of tests/scheduling/scenarios.py on the simulated executor: the same steps, the same order of work."""

import dataclasses

import pytest

from engine.core.clock import seconds_to_ns
from engine.core.request import Request
from engine.core.slo import SLO
from engine.simulation.device import DeviceModel
from engine.simulation.devices.curve import CurveDevice
from engine.simulation.settings import SimulationSettings
from tests.fakes.fake_executor import uneven_operators
from tests.scheduling.rig import SETTINGS, Rig
from tests.scheduling.scenarios import SCENARIOS, Arrive, Cancel, Scenario, Until
from tests.simulation.simulated_world import ListedDevice, SimulatedWorld

WORLDS: dict[str, tuple[DeviceModel, SimulationSettings]] = {
    "ideal": (ListedDevice(), SimulationSettings()),
    "delays and noise": (
        ListedDevice(uneven_operators),
        SimulationSettings(2e-7, 1e-6, 3e-7, 5e-8, noise_cv=0.05, noise_seed=7),
    ),
    "continuous": (CurveDevice(0.0, 1e-6, 0.0), SimulationSettings(switch_s=1e-6)),
    "poll": (ListedDevice(), SimulationSettings(rounds="poll", poll_s=1e-6)),
    "operator": (ListedDevice(), SimulationSettings(rounds="operator", round_s=1e-8)),
}
"""1000 ns a token, as the rig's predictor says; disturbed or not."""


@pytest.mark.parametrize("world", sorted(WORLDS))
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_simulated_engine_executes_in_the_order_the_scenario_says(scenario: Scenario, world: str) -> None:
    settings = dataclasses.replace(SETTINGS, kv_blocks=scenario.kv_blocks)
    rig = Rig(scenario.policy(), scenario.batching(), settings, SimulatedWorld(*WORLDS[world]))
    seq = 0
    for step in scenario.steps:
        match step:
            case Arrive(prompts):
                for prompt in prompts:
                    slo = SLO(None if prompt.slo_s is None else seconds_to_ns(prompt.slo_s))
                    at_ns = rig.world.now_ns()
                    rig.world.arrive(Request(prompt.name, seq, at_ns, prompt.tokens, prompt.max_tokens, slo))
                    seq += 1
                rig.step()
            case Until(name):
                while not executes(rig, name):
                    assert rig.step(), f"{name} never executes"
            case Cancel(name):
                rig.cancel(name)
    rig.drain()
    assert tuple(rig.runs) == scenario.runs
    assert tuple(rig.sink.rejections) == scenario.rejected
    rig.check_baseline()
    rig.check_replay()


def executes(rig: Rig, name: str) -> bool:
    task = rig.scheduler._pool.executing
    return task is not None and any(sequence.request_id == name for sequence in task.task.sequences)
