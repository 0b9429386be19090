"""What is told of operators that wait for the device: on a CPU none can, so that the device is a stand-in."""

import dataclasses
import time
from pathlib import Path

import pytest
import torch

from bench.gpu_check import pausing
from bench.gpu_check.report import Report
from bench.gpu_check.scale import TINY, Setting
from engine.torch_backend.program import Operator


def waiting(capability: tuple[int, int], folder: Path, monkeypatch: pytest.MonkeyPatch) -> Report:
    """The part on a "GPU" of this capability on which every `experts` operator waits."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    loaded = pausing.load_model
    monkeypatch.setattr(pausing, "load_model", lambda folder, *_: loaded(folder, "cpu", "float32"))

    def waits(operator: Operator, _: str) -> bool:
        return operator.name.endswith(".experts")

    monkeypatch.setattr(pausing, "_waits", waits)
    report = Report(judge_speed=False)
    setting = Setting(dataclasses.replace(TINY, device="cuda"), folder, folder, time.monotonic() + 60)
    pausing.check_waiting(setting, report)
    return report


def test_experts_may_wait_before_hopper_and_not_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ampere = waiting((8, 0), tmp_path, monkeypatch)
    assert ampere.missed == []
    (told,) = (line for line in ampere.lines if "before Hopper" in line.what)
    assert (told.what.split(":")[0], told.value) == ("cpu_qwen3_moe", 2)
    hopper = waiting((9, 0), tmp_path, monkeypatch)
    assert [name for name in hopper.missed if "cpu_qwen3_moe: operators that wait" in name] == hopper.missed
    assert len(hopper.missed) == 1
