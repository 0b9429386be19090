"""A model split over two ranks as a measured point: two real processes over gloo, served, measured, recorded."""

import csv
import json
import os
from pathlib import Path

import pytest

from tests.end_to_end.command import TINY, run

FIRST, *FURTHER = sorted(os.sched_getaffinity(0))
TWO_CPUS = FIRST + 1 in FURTHER
PIN = ("device.pin=auto",) if TWO_CPUS else ()
SPLIT = (*TINY, *PIN, "experiment=smoke", "system=flowprefill", "model.tensor_parallel=2")


@pytest.mark.slow
def test_a_split_model_is_measured_and_recorded(tmp_path: Path) -> None:
    prefills = [{"new_tokens": n, "context_tokens": 0, "seconds": 0.005 + n / 5000} for n in (8, 32, 128, 512)]
    (tmp_path / "two.json").write_text(json.dumps({"device": "this", "tensor_parallel": 2, "prefill": prefills}))
    short = ("workload.window_s=3", "load.rate_scale=1", "workload.max_input=2048", "device.profile=two.json")
    status, _, err = run(tmp_path, *SPLIT, *short)
    assert status == 0, err
    with (tmp_path / "results" / "tables" / "smoke.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["requests_due"] == row["requests_ok"] != "0"
    assert row["model"] == "cpu_tiny, tensor_parallel=2"
    (folder,) = (tmp_path / "results" / "raw" / "smoke").glob("flowprefill*")
    origin = json.loads((folder / "provenance.json").read_text())
    command = origin["server_command"]
    assert command[command.index("--tensor-parallel") + 1] == "2"
    assert [each["process"] for each in origin["engine_processes"]] == ["engine", "rank-1"]
    if TWO_CPUS:
        assert [each["cpus"] for each in origin["engine_processes"]] == [[FIRST], [FIRST + 1]]


def test_a_profile_of_one_rank_is_not_taken_for_two(tmp_path: Path) -> None:
    entry = {"new_tokens": 1, "context_tokens": 0, "seconds": 0.1}
    content = {"device": "this", "prefill": [entry, {**entry, "new_tokens": 9}]}
    (tmp_path / "one.json").write_text(json.dumps(content))
    status, _, err = run(tmp_path, *SPLIT, "device.profile=one.json")
    assert status == 2
    assert (
        err.strip()
        .splitlines()[-1]
        .endswith("one.json was measured with tensor_parallel=1, model.tensor_parallel is 2")
    )
