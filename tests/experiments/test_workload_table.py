"""The command that writes down what is replayed."""

import csv
from pathlib import Path

import pytest

from harness.assembly.reading import SettingsError
from harness.experiments.compose import outside_hydra
from harness.experiments.workload_table import write_workload


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_window_with_its_classes_and_slos(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with outside_hydra() as job:
        assert write_workload(job([f"output.results={tmp_path}", "workload.window_s=2"])) == 0
    found = rows(tmp_path / "tables" / "workload_sample.csv")
    assert [tuple(row.values()) for row in found] == [
        ("sample", "0", "0", "text", "94", "172", "0.25", "0.1"),
        ("sample", "1", "0.215", "text", "774", "66", "0.25", "0.1"),
        ("sample", "2", "0.273", "text", "1035", "354", "0.25", "0.1"),
        ("sample", "3", "1.273", "file", "9886", "773", "6", "0.2"),
    ]
    assert "4 requests in" in capsys.readouterr().out


def test_a_class_comes_from_the_slo_rule_and_a_gap_stays_empty(tmp_path: Path) -> None:
    with outside_hydra() as job:
        settings = [f"output.results={tmp_path}", "workload.window_s=2", "slo=uniform", "slo.uniform.ttft_s=null"]
        write_workload(job(settings))
    assert {row["ttft_slo_s"] for row in rows(tmp_path / "tables" / "workload_sample.csv")} == {""}


def test_a_trace_that_is_not_there_is_a_mistake(tmp_path: Path) -> None:
    with outside_hydra() as job, pytest.raises(SettingsError, match="nowhere"):
        write_workload(job([f"output.results={tmp_path}", "workload=qwen", "workload.path=nowhere.jsonl"]))
