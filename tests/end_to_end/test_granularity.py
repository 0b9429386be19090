"""The experiment `granularity` end to end, on the smallest model."""

import csv
from pathlib import Path

import pytest

from tests.end_to_end.command import TINY, run
from tests.experiments.points import profile_text

STUDY = (*TINY, "experiment=granularity", "pauses.per_setting=6", "pauses.prefills=3", "pauses.rounds=2")


@pytest.mark.slow
def test_every_setting_is_paused_and_walks_back(tmp_path: Path) -> None:
    # Only the speed factor comes from it here; measuring a real one is tests/end_to_end/test_run.py's.
    (tmp_path / "profile.json").write_text(profile_text())
    study = (*STUDY, "device.profile=profile.json")
    status, _, err = run(tmp_path, *study)
    assert status == 0, err
    table = tmp_path / "results" / "tables" / "granularity.csv"
    before = table.read_bytes()
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert sorted((row["granularity"], row["chunk_tokens"]) for row in rows) == [
        ("half_layer", ""), ("layer", ""), ("none", ""), ("none", "1024"), ("none", "2048"), ("none", "256"),
        ("none", "512"), ("operator", ""), ("tile", ""),
    ]  # fmt: skip
    for row in rows:
        assert 0 < int(row["blocking_n"]) <= 6
        assert float(row["prefill_tokens_per_s"]) > 0
        assert float(row["blocking_predicted_mean_ms"]) > 0
    status, _, err = run(tmp_path, *study)
    assert (status, table.read_bytes()) == (0, before)
    assert "all 9 settings are measured already" in err
    status, out, _ = run(tmp_path, rows[0]["point"], module="harness.experiments.show")
    assert status == 0
    assert "blocking_mean_ms = " in out
    assert "versions   " in out


def test_a_study_of_an_external_server_is_refused(tmp_path: Path) -> None:
    status, _, err = run(tmp_path, *STUDY, "system=external", "system.base_url=http://127.0.0.1:1")
    assert status == 2
    assert "system=external has none" in err
    assert len(err.strip().splitlines()) == 1
