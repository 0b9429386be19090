"""The scenarios in the fake world."""

import dataclasses

import pytest

from engine.core.clock import seconds_to_ns
from engine.core.request import Request
from engine.core.slo import SLO
from tests.scheduling.rig import SETTINGS, Rig
from tests.scheduling.scenarios import SCENARIOS, Arrive, Cancel, Scenario, Until


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_work_executes_in_the_order_the_scenario_says(scenario: Scenario) -> None:
    settings = dataclasses.replace(SETTINGS, kv_blocks=scenario.kv_blocks)
    rig = Rig(scenario.policy(), scenario.batching(), settings)
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
