"""The check of a GPU, at tiny shapes on a CPU: every part, in a process of its own, with real servers."""

import csv
import json
from pathlib import Path

import pytest

from harness.experiments.profile_step import read_profile
from tests.end_to_end.command import start

PARTS = [
    "parity", "waiting", "pausing", "timings", "checks", "memory", "granularity", "launch bounds", "transformers",
    "goodput",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_every_part_runs_and_nothing_is_missed(tmp_path: Path) -> None:
    process = start(tmp_path, "--tiny", "--out", "out", module="bench.gpu_check")
    shown, err = process.communicate(timeout=390)
    assert process.returncode == 0, shown + err
    content = json.loads((tmp_path / "out" / "results.json").read_text())
    assert list(content["seconds"]) == PARTS
    assert content["missed"] == []
    assert list(dict.fromkeys(line["part"] for line in content["lines"])) == PARTS
    assert "FAIL" not in shown
    profile = read_profile(next((tmp_path / "out" / "profiles").glob("*/cpu_tiny.json")))
    assert profile.seconds_of()(64) > 0
    with (tmp_path / "out" / "goodput.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["series"] for row in rows] == ["FlowPrefill (operator)", "DistServe (FCFS)"]
    assert all(int(row["requests"]) > 0 for row in rows)
    assert sorted(path.name for path in (tmp_path / "out").glob("*.csv")) == [
        "bounds.csv", "checks.csv", "goodput.csv", "granularity.csv", "memory.csv", "operators.csv", "parity.csv",
        "pausing.csv", "prefill.csv", "summary.csv", "transformers.csv",
    ]  # fmt: skip
