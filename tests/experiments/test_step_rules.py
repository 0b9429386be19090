"""The step rules of other servers, from their names in conf/system to the order and the steps they make."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from engine.serving.catalogue import build_batching, build_policy, check
from harness.assembly.effective import engine_settings
from harness.assembly.point import read_point
from harness.assembly.reading import SettingsError
from harness.experiments.compose import outside_hydra
from tests.scheduling.rig import TokenPredictor, always, item


@pytest.fixture(scope="module", name="job")
def _job() -> Iterator[Any]:
    with outside_hydra() as make:
        yield make


@pytest.mark.parametrize(
    ("system", "series"), [("vllm_like", "vLLM-like 2048 (edf)"), ("sglang_like", "SGLang-like 8192 (edf)")]
)
def test_a_step_rule_by_name_finishes_what_has_begun(job: Any, system: str, series: str) -> None:
    point = read_point(job([f"system={system}", "system.policy=edf", "device=cpu"]).config)
    assert point.system.series == series
    settings = engine_settings(point, "", None)
    check(settings)
    budget = settings.chunk_tokens
    assert budget == point.system.chunk_tokens * point.model.length_scale
    items = [item(1, due_at_ns=1, tokens=budget), item(2, due_at_ns=9, tokens=40, context=budget)]
    order = build_policy(settings).plan(SimpleNamespace(items=items, executing=None), 0).order
    step = build_batching(settings).select(order, always, TokenPredictor(), 0)
    assert [(share.item.key, share.tokens) for share in step] == [(2, 40), (1, budget - 40)]


def test_a_step_rule_needs_its_budget(job: Any) -> None:
    with pytest.raises(SettingsError, match=r"system\.batching=vllm_like needs system\.chunk_tokens"):
        read_point(job(["system=vllm_like", "system.chunk_tokens=null", "device=cpu"]).config)
