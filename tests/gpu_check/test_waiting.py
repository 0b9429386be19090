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


@pytest.mark.parametrize("capability", [(8, 0), (8, 9), (12, 0)])
def test_experts_may_wait_where_torch_groups_on_the_host(
    capability: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = waiting(capability, tmp_path, monkeypatch)
    assert found.missed == []
    (told,) = (line for line in found.lines if "grouped_mm" in line.what)
    assert (told.what.split(":")[0], told.value) == ("cpu_qwen3_moe", 2)


@pytest.mark.parametrize("capability", [(9, 0), (10, 0)])
def test_experts_must_not_wait_where_it_groups_on_the_device(
    capability: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = waiting(capability, tmp_path, monkeypatch)
    assert [name for name in found.missed if "cpu_qwen3_moe: operators that wait" in name] == found.missed
    assert len(found.missed) == 1
