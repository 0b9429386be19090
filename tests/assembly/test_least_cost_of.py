"""The least cost of a request lies below what it pays on the device, alone, in any batch and in chunks."""

from collections.abc import Sequence as Many
from typing import Any

import pytest

from engine.core.batch import Sequence, Task, TaskKind
from harness.assembly.least_cost_of import least_cost_of
from harness.assembly.point import read_point
from harness.assembly.reading import SettingsError
from harness.assembly.settings import PointSettings
from harness.assembly.simulated_device import device_model
from harness.experiments.compose import outside_hydra

BATCH = 2048


def point(*overrides: str) -> PointSettings:
    with outside_hydra() as make:
        return read_point(make(["experiment=sim_smoke", *overrides]).config)


def seconds(settings: PointSettings, *sequences: tuple[int, int, bool]) -> float:
    members = tuple(Sequence(f"r{i}", context, new, last) for i, (new, context, last) in enumerate(sequences))
    return float(device_model(settings).program(Task(0, TaskKind.PREFILL, members)).seconds.sum())


@pytest.mark.parametrize("model", ["llama3_8b", "qwen3_30b_a3b"])
@pytest.mark.parametrize("system", ["flowprefill", "flowprefill_tile", "distserve"])
def test_members_of_a_task_cost_no_less_than_their_least(model: str, system: str) -> None:
    settings = point(f"model={model}", f"system={system}")
    cost = least_cost_of(settings, BATCH)
    batches: Many[Many[int]] = [(1,), (17, 900), (128,) * 16, (2048,), (5000,), (15126,), (3, 5, 2000)]
    for batch in batches:
        task = seconds(settings, *[(tokens, 0, True) for tokens in batch])
        assert task >= sum(cost.seconds(tokens) for tokens in batch)
    chunks = [(min(512, 3000 - start), start, start + 512 >= 3000) for start in range(0, 3000, 512)]
    assert sum(seconds(settings, chunk) for chunk in chunks) >= cost.seconds(3000)


def test_the_bound_is_not_far_below_a_long_prompt_alone() -> None:
    settings = point("system=distserve")
    assert least_cost_of(settings, BATCH).seconds(15126) >= 0.95 * seconds(settings, (15126, 0, True))


def test_a_curve_has_its_least_cost_by_the_formula() -> None:
    settings = point("device=a800_envelope")
    c0, c1, c2 = 0.017373170911, 5.717282857e-5, 2.686895652e-9
    assert least_cost_of(settings, 2048).seconds(512) == pytest.approx(c0 / 4 + c1 * 512 + c2 * 512 * 512)


@pytest.mark.parametrize("change", ["device.simulation.noise_cv=0.02", "device=cpu_simulated"])
def test_where_no_least_is_known_there_is_no_bound(change: str) -> None:
    settings: Any = point(change)
    with pytest.raises(SettingsError, match="bound"):
        least_cost_of(settings, 2048)
