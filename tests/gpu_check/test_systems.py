"""The check knows its systems without Hydra; conf/ says what they are."""

import dataclasses
from pathlib import Path

import pytest

from bench.gpu_check.goodput import SLOS, SYSTEMS, settings_of
from bench.gpu_check.scale import GPU, Setting
from engine.serving.settings import flags, parse_command_line
from harness.assembly.effective import engine_settings
from harness.assembly.point import read_point
from harness.experiments.compose import outside_hydra
from tests.experiments.points import profile_text


def test_systems_and_slos_are_those_of_the_settings_files() -> None:
    with outside_hydra() as make:
        for system in SYSTEMS:
            overrides = [f"system={system.name}", f"system.policy={system.policy}"]
            point = read_point(make([*overrides, "model=llama3_8b", "device=cuda"]).compose({}))
            assert dataclasses.asdict(system) == dataclasses.asdict(point.system)
            assert point.slo == SLOS


@pytest.mark.parametrize("system", SYSTEMS, ids=[system.series for system in SYSTEMS])
def test_each_is_a_server_on_the_gpu_with_the_whole_trace_or_what_fits(tmp_path: Path, system: object) -> None:
    profile = tmp_path / "profile.json"
    profile.write_text(profile_text())
    setting = Setting(GPU, tmp_path, tmp_path, 1e9)
    point, factor = settings_of(setting, profile, system, 3.0)  # type: ignore[arg-type]
    engine, _ = parse_command_line(flags(engine_settings(point, str(profile), None)))
    assert (engine.model, engine.device, engine.dtype) == ("llama3_8b", "cuda", "bfloat16")
    asked_s = factor * (point.workload.window_s or 0) * sum(1 / rate for rate in GPU.rates)
    assert asked_s <= GPU.arrivals_s + 1e-6 or point.workload.window_s == 5.0
