"""Names and what they stand for."""

import dataclasses
import itertools
import json
from pathlib import Path

import pytest

from engine.core.batch import Work
from engine.core.ports import OnPreempt
from engine.model.granularity import Granularity
from engine.scheduling.predictors.polynomial import PrefillSample
from engine.scheduling.scheduler import Scheduler
from engine.serving.catalogue import (
    ATTENTIONS,
    BATCHINGS,
    GRANULARITIES,
    POLICIES,
    PREEMPT_MODES,
    build_policy,
    build_predictor,
    check,
)
from engine.serving.scheduler_recipe import SchedulerRecipe
from engine.serving.settings import EngineSettings, SettingsError
from engine.serving.timings import Timings, read_timings
from engine.torch_backend import attention_choice
from engine.torch_backend.profiling import profile
from engine.torch_backend.rank_messages import ModelChoice

LINEAR = Timings(2, tuple(PrefillSample(n, 0, n * 1e-3) for n in (16, 64, 256, 1024)))


class NoWork:
    """A view of nothing."""

    items = ()
    executing = None


@pytest.mark.parametrize(("policy", "batching", "preempt"), list(itertools.product(POLICIES, BATCHINGS, PREEMPT_MODES)))
def test_every_combination_makes_a_scheduler_again_from_its_json(policy: str, batching: str, preempt: str) -> None:
    settings = EngineSettings(policy=policy, batching=batching, preempt=preempt)
    recipe = SchedulerRecipe(settings, 1000, "float32", LINEAR)
    again = SchedulerRecipe.from_json(json.loads(json.dumps(recipe.to_json())))
    assert again == recipe
    again.build(Scheduler, lambda task: 1).check()
    wanted = {"pause": OnPreempt.PAUSE, "never": OnPreempt.NEVER, "restart": OnPreempt.RESTART}[preempt]
    assert build_policy(settings).plan(NoWork(), 0).preempt is wanted


def test_an_unknown_name_lists_those_known() -> None:
    with pytest.raises(SettingsError) as caught:
        check(dataclasses.replace(EngineSettings(), policy="lottery"))
    assert str(caught.value) == f"--policy: there is no 'lottery'; choose from {', '.join(POLICIES)}"


def test_granularities_are_the_executors() -> None:
    assert set(GRANULARITIES) == set(Granularity)


def test_attentions_are_those_the_engine_knows() -> None:
    assert ATTENTIONS == attention_choice.ATTENTIONS
    with pytest.raises(
        SettingsError, match="--attention: there is no 'fast'; choose from auto, sdpa, torch_varlen, fla"
    ):
        check(EngineSettings(attention="fast"))


def test_the_polynomial_is_fitted_to_the_timings() -> None:
    predictor = build_predictor(EngineSettings(), LINEAR)
    assert predictor.estimate_ns(Work(((500, 0),))) == pytest.approx(5e8, rel=1e-6)


def test_operator_sum_is_fitted_to_a_real_profile(tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    file.write_text(
        json.dumps(profile(ModelChoice("cpu_tiny", "cpu", None, True, 0), max_tokens=300, threads=1, rounds=1))
    )
    timings = read_timings(file, layers=2)
    predictor = build_predictor(EngineSettings(predictor="operator_sum"), timings)
    longest = max(sample.new_tokens for sample in timings.operators if not sample.context_tokens)
    assert 0 < predictor.estimate_ns(Work(((longest // 2, 0),))) <= predictor.estimate_ns(Work(((longest, 0),)))


def test_operator_sum_without_operator_timings_is_one_sentence() -> None:
    with pytest.raises(SettingsError, match="--predictor operator_sum cannot be fitted: the profile has no times of"):
        build_predictor(EngineSettings(predictor="operator_sum"), LINEAR)
