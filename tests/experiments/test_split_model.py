"""A split model as a measured point: what is refused, its cores, its server's flags; the devices of a GPU machine."""

from pathlib import Path
from typing import Any

import pytest

from engine.model.catalogue import load_shape
from engine.serving.settings import flags, parse_command_line
from engine.torch_backend.models.shard import Shard
from engine.torch_backend.rank_link import device_of
from harness.assembly.effective import engine_processes, engine_settings
from harness.assembly.point import read_point
from harness.assembly.reading import SettingsError
from harness.assembly.settings import PointSettings
from harness.experiments.compose import outside_hydra
from harness.experiments.machine import UNPINNED, Cores
from harness.experiments.profile_step import Profile, require_ranks


def composed(*words: str) -> PointSettings:
    with outside_hydra() as make:
        return read_point(make(["experiment=smoke", *words]).compose({}))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_server_of_two_ranks_is_asked_for(device: str) -> None:
    point = composed("model=llama3_8b", "model.tensor_parallel=2", f"device={device}", "system=flowprefill")
    settings, _ = parse_command_line(flags(engine_settings(point, "profile.json", 0)))
    assert (settings.tensor_parallel, settings.device, settings.engine_cpu) == (2, device, 0)
    assert engine_processes(point) == 2


def test_ranks_take_the_devices_in_order() -> None:
    assert [device_of("cuda", rank) for rank in range(3)] == ["cuda:0", "cuda:1", "cuda:2"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("system=flowprefill_1p1d",), "model.tensor_parallel=2 conflicts with system=flowprefill_1p1d: KV is handed"),
        (("system=vllm",), "model.tensor_parallel=2 splits our own engine, and conflicts with system=vllm"),
    ],
)
def test_what_cannot_be_split_is_one_sentence(words: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        composed("model.tensor_parallel=2", "device=cpu", *words)


@pytest.mark.parametrize(
    ("cores", "processes", "spread"),
    [
        (Cores(0, frozenset({1})), 1, Cores(0, frozenset({1}))),
        (Cores(0, frozenset({1})), 2, Cores(0, frozenset({1}))),  # the client shares the last rank's core
        (Cores(0, frozenset({1, 2, 3})), 2, Cores(0, frozenset({2, 3}))),
        (Cores(0, frozenset({1})), 3, UNPINNED),
        (Cores(0, frozenset({2, 3})), 2, UNPINNED),  # ranks take the CPUs after the engine's
        (UNPINNED, 2, UNPINNED),
    ],
)
def test_every_process_of_an_engine_has_a_core(cores: Cores, processes: int, spread: Cores) -> None:
    assert cores.spread(processes) == spread


def test_a_profile_of_another_split_is_refused() -> None:
    content: dict[str, Any] = {"tensor_parallel": 4}
    point = composed("model.tensor_parallel=2", "device=cpu", "system=flowprefill")
    with pytest.raises(SettingsError, match=r"p.json was measured with tensor_parallel=4, model.tensor_parallel is 2"):
        require_ranks(Profile(Path("p.json"), content, ""), point)


@pytest.mark.parametrize(("model", "ranks"), [("qwen2_5_14b", 2), ("llama3_70b", 4), ("qwen3_30b_a3b", 2)])
def test_the_paper_s_split_models_can_be_measured_on_gpus(model: str, ranks: int) -> None:
    point = composed(f"model={model}", "device=cuda", "model.kv_tokens=100000", "system=flowprefill")
    settings, _ = parse_command_line(flags(engine_settings(point, "profile.json", None)))
    assert (settings.tensor_parallel, settings.dtype, settings.dummy_weights) == (ranks, "bfloat16", True)
    parts = [Shard(rank, ranks).shape(load_shape(settings.model)) for rank in range(ranks)]
    assert sum(part.heads for part in parts) == load_shape(settings.model).heads
