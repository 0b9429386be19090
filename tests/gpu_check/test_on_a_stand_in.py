"""The parts of the check as they run on a GPU, on a device that is none: all of their code for CUDA, and no time."""

import dataclasses
import json
import time
from pathlib import Path

import pytest
import torch

from bench.gpu_check import parity, parts, pausing
from bench.gpu_check.report import Report
from bench.gpu_check.scale import TINY, Setting
from engine.torch_backend import profiling
from engine.torch_backend.models import catalogue
from engine.torch_backend.models.decoder import Decoder
from tests.fakes.cuda_stand_in import DEVICE, stand_in

SMALL = dataclasses.replace(
    TINY, device="cuda", dtype="bfloat16", profile_lengths=((16, 0), (64, 0), (16, 32)), memory_lengths=(256,),
    compared_lengths=(64,), blocking_tokens=128, bound_tokens=64, pauses=4, pauses_a_pass=2,
)  # fmt: skip


@pytest.mark.timeout(300)
def test_every_part_but_the_servers_runs_its_code_for_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = catalogue.load_model
    torch.set_num_threads(1)

    def load_on_it(name: str, device: str, dtype: str) -> Decoder:
        assert device == "cuda"
        model = loaded(name, "cpu", dtype, attention="sdpa")
        model.device = DEVICE
        return model

    for module in (parity, parts, pausing):
        monkeypatch.setattr(module, "load_model", load_on_it)
    on_device: list[int] = []
    timed = profiling.Bench._device_seconds
    monkeypatch.setattr(
        profiling.Bench, "_device_seconds", lambda bench, program: on_device.append(1) or timed(bench, program)
    )
    report = Report(judge_speed=False)
    setting = Setting(SMALL, tmp_path, tmp_path, time.monotonic() + 600)
    with stand_in(monkeypatch) as debug_modes, torch.inference_mode():
        for name, part in parts.parts_of(setting):
            report.part = name
            if name != "goodput":
                part(report)
    assert report.missed == []
    assert len({line.part for line in report.lines}) == 9
    assert len(on_device) > 10
    assert debug_modes[:2] == ["error", "default"]
    (profile,) = (tmp_path / "profiles").glob("stand_in*/cpu_tiny.json")
    assert json.loads(profile.read_text())["device"] == "stand-in"
    held = report.tables["memory"]
    assert all(0.95 <= row["worst_boundary_bytes"] / row["reserved_bytes"] <= 1.05 for row in held)  # type: ignore[operator]
    assert [row["launch_bound_us"] for row in report.tables["bounds"]] == [0, 500, 0, 500]
