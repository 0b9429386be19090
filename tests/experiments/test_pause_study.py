"""Pauses at random instants, on the smallest model. What is counted is exact; no time is held against a bound."""

from collections.abc import Iterator

import pytest

from engine.model.granularity import Granularity, TileSettings
from engine.torch_backend.boundary_gaps import boundary_gaps_ns
from engine.torch_backend.clock import MonotonicClock
from engine.torch_backend.models.catalogue import load_model
from engine.torch_backend.models.llama import Llama
from engine.torch_backend.settings import ExecutorSettings
from harness.experiments.pause_rounds import even_lengths
from harness.experiments.pause_study import PauseStudy, uniform_instants_ns

LAYERS = 2
PROMPTS = [tuple(range(16, 16 + length)) for length in (40, 200, 100)]


@pytest.fixture(scope="module", name="model")
def _model() -> Llama:
    return load_model("cpu_tiny")


@pytest.fixture(name="study", params=["none", "layer", "operator", "tile", "chunks"])
def _study(request: pytest.FixtureRequest, model: Llama) -> Iterator[PauseStudy]:
    chunk = 64 if request.param == "chunks" else None
    settings = ExecutorSettings(
        granularity=Granularity("none" if chunk else request.param), tiles=TileSettings(64, 4096), kv_blocks=64
    )
    study = PauseStudy(model, settings, PROMPTS, chunk)
    yield study
    study.close()


def test_every_pause_asked_is_one_sample_and_all_work_is_done(study: PauseStudy) -> None:
    plain = study.run()
    assert (plain.blocking_ns, plain.preemptions) == ((), 0)
    assert study.tokens == 340
    # Instants at the very beginning come for sure, whatever the speed of the machine.
    paused = study.run([0, 0, 1, 2])
    assert len(paused.blocking_ns) == 4
    assert all(sample >= 0 for sample in paused.blocking_ns)
    assert paused.executed_ns > 0
    assert not study._executor.cache.holders


def test_instants_beyond_the_end_are_not_asked(study: PauseStudy) -> None:
    assert study.run([10**15]).blocking_ns == ()


@pytest.mark.parametrize(
    ("granularity", "gaps"),
    [
        ("none", 1),
        # before each layer, before the head, and the end; what comes before the first stop is a gap as well
        ("layer", 1 + 1 + LAYERS + 1),
        ("half_layer", 1 + 1 + 2 * LAYERS + 1),
        ("operator", 1 + 1 + 5 * LAYERS + 1),
    ],
)
def test_a_prefill_has_a_gap_between_any_two_stops(model: Llama, granularity: str, gaps: int) -> None:
    found = boundary_gaps_ns(
        model, ExecutorSettings(granularity=Granularity(granularity)), MonotonicClock(), PROMPTS[0]
    )
    assert len(found) == gaps
    assert all(gap >= 0 for gap in found)


def test_chunks_end_at_stops(model: Llama) -> None:
    settings = ExecutorSettings(granularity=Granularity.NONE)
    assert len(boundary_gaps_ns(model, settings, MonotonicClock(), PROMPTS[1], chunk_tokens=64)) == 4  # 200 / 64


def test_instants_are_uniform_and_scale_with_the_span() -> None:
    instants = uniform_instants_ns(2000, 10**9, seed=1)
    assert instants == sorted(instants)
    assert uniform_instants_ns(2000, 10**9, seed=1) == instants != uniform_instants_ns(2000, 10**9, seed=2)
    assert [sum(instant // 10**8 == tenth for instant in instants) for tenth in range(10)] == pytest.approx(
        [200] * 10, abs=60
    )
    doubled = uniform_instants_ns(2000, 2 * 10**9, seed=1)
    assert all(abs(b - 2 * a) <= 2 for a, b in zip(instants, doubled, strict=True))


def test_prompts_are_a_mix_like_the_whole() -> None:
    assert even_lengths(range(1, 101), 4) == [13, 38, 63, 88]
    assert even_lengths([5], 3) == [5, 5, 5]
