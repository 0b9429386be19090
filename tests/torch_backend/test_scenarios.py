"""The scenarios of tests/scheduling/scenarios.py on a model: the same steps, the same order of work."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from engine.core.clock import seconds_to_ns
from engine.model.granularity import Granularity, TileSettings
from engine.torch_backend.models.llama import Llama
from tests.scheduling.scenarios import BLOCK_TOKENS, SCENARIOS, Arrive, Cancel, Prompt, Scenario, Until
from tests.torch_backend.scheduled_engine import HeldStarts, ScheduledEngine

TILES = TileSettings(rows=128, pairs=128 * 128)


def wanted(prompt: Prompt) -> tuple[str, int, int | None, int]:
    slo_ns = None if prompt.slo_s is None else seconds_to_ns(prompt.slo_s)
    return (prompt.name, prompt.tokens, slo_ns, prompt.max_tokens)


@contextmanager
def engine_of(scenario: Scenario, model: Llama, granularity: Granularity) -> Iterator[ScheduledEngine]:
    policy, batching = scenario.policy(), scenario.batching()
    engine = ScheduledEngine(model, policy, batching, scenario.kv_blocks, BLOCK_TOKENS, granularity, tiles=TILES)
    try:
        yield engine
    finally:
        engine.executor.close()


def executes(engine: ScheduledEngine, name: str) -> bool:
    return engine.executing is not None and any(s.request_id == name for s in engine.executing.sequences)


def play(scenario: Scenario, engine: ScheduledEngine, held: HeldStarts) -> None:
    """What executes is held while a step happens: it cannot end before, however fast the machine."""
    for step in scenario.steps:
        match step:
            case Arrive(prompts):
                engine.arrive(*(wanted(prompt) for prompt in prompts))
                engine.step()
            case Until(name):
                while not executes(engine, name):
                    held.let_go(engine.executing)
                    engine.step()
            case Cancel(name):
                engine.cancel(name)
                engine.step()
    held.open()
    engine.drain()


@pytest.mark.parametrize("granularity", [Granularity.OPERATOR, Granularity.TILE, Granularity.LAYER])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_model_executes_in_the_order_the_scenario_says(
    scenario: Scenario, granularity: Granularity, tiny: Llama, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = HeldStarts(monkeypatch, tiny)
    with engine_of(scenario, tiny, granularity) as engine:
        try:
            play(scenario, engine, held)
        finally:
            held.open()
        assert engine.runs == scenario.runs
        assert tuple(engine.rejected_ids) == scenario.rejected
        left = {step.name for step in scenario.steps if isinstance(step, Cancel)}
        arrived = [each.name for step in scenario.steps if isinstance(step, Arrive) for each in step.prompts]
        assert sorted(engine.completed) == sorted(set(arrived) - left - set(scenario.rejected))
        engine.check_baseline()
        engine.check_replay()
