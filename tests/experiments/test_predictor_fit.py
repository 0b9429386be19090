"""The command that holds a predictor against its device."""

import re
from pathlib import Path

import pytest

from engine.scheduling.predictors.polynomial import PrefillSample
from harness.assembly.reading import SettingsError
from harness.experiments.compose import outside_hydra
from harness.experiments.point_origin import UnknownPointError, describe, find_point
from harness.experiments.predictor_fit import between, write_fit
from harness.experiments.run_list import read_run_list, runs_beside
from harness.measurement.table_file import read_table


def fitted(results: Path, model: str, *settings: str) -> None:
    with outside_hydra() as job:
        assert write_fit(job([f"output.results={results}", f"model={model}", *settings])) == 0


def test_lengths_between_are_half_way_as_a_ratio_and_only_of_whole_prompts() -> None:
    samples = [PrefillSample(100, 0, 1.0), PrefillSample(4, 0, 1.0), PrefillSample(16, 0, 1.0)]
    assert between([*samples, PrefillSample(50, 9, 1.0)]) == [(8, 0), (40, 0)]


def test_errors_are_those_of_the_two_times_and_a_rerun_gives_the_same_bytes(tmp_path: Path) -> None:
    path = tmp_path / "tables" / "predictor_fit.csv"
    fitted(tmp_path, "llama3_8b", "device=a800_clean")
    first, rows = path.read_bytes(), read_table(path)
    for row in rows:
        error = float(row["predicted_s"]) / float(row["true_s"]) - 1
        assert error == pytest.approx(float(row["relative_error"]), abs=1e-6)
    assert {row["fitted"] for row in rows} == {"true", "false"}
    assert max(abs(float(row["relative_error"])) for row in rows if int(row["new_tokens"]) > 4096) < 0.05
    fitted(tmp_path, "llama3_8b", "device=a800_clean")
    assert path.read_bytes() == first
    fitted(tmp_path, "llama3_8b", "device=a800_release")
    assert {row["device"] for row in read_table(path)} == {"a800_clean", "a800_release"}
    assert [row for row in read_table(path) if row["device"] == "a800_clean"] == rows


def test_a_length_without_operator_times_has_no_prediction(tmp_path: Path) -> None:
    fitted(tmp_path, "cpu_demo", "device=cpu_simulated", "system.predictor=operator_sum")
    rows = {int(row["new_tokens"]): row for row in read_table(tmp_path / "tables" / "predictor_fit.csv")}
    assert (rows[4]["predicted_s"], rows[4]["relative_error"]) == ("", "")
    assert float(rows[4]["true_s"]) > 0
    assert float(rows[512]["predicted_s"]) > 0


def test_show_walks_a_row_back_to_its_run(tmp_path: Path) -> None:
    fitted(tmp_path, "llama3_8b", "device=a800_clean")
    fitted(tmp_path, "llama3_8b", "device=a800_release")
    told = describe(find_point(tmp_path, "llama3_8b-a800_clean-polynomial-00000-04029"), tmp_path)
    assert "again      python -m harness.experiments.predictor_fit model=llama3_8b device=a800_clean\n" in told
    assert re.search(r"^commit     [0-9a-f]{40}", told, re.MULTILINE)
    assert "  true_s = " in told
    with pytest.raises(UnknownPointError, match="is the beginning of"):
        find_point(tmp_path, "llama3_8b-a800_clean")
    with pytest.raises(UnknownPointError, match="near it: llama3_8b-a800_clean"):
        find_point(tmp_path, "llama3_8b-a800_klean-polynomial-00000-04029")


def test_rows_made_again_belong_to_the_last_run(tmp_path: Path) -> None:
    fitted(tmp_path, "llama3_8b", "device=a800_clean")
    fitted(tmp_path, "llama3_8b", "device=a800_clean", "system.predictor=polynomial")
    runs = read_run_list(tmp_path / "tables" / "predictor_fit_runs.json")
    assert [len(run["points"]) for run in runs] == [98]
    assert runs[0]["origin"]["again"].endswith("system.predictor=polynomial")


@pytest.mark.parametrize("name", ["predictor_fit", "predictor_error"])
def test_every_committed_row_says_which_run_made_it(name: str) -> None:
    table = Path(__file__).resolve().parents[2] / "results" / "tables" / f"{name}.csv"
    runs = read_run_list(runs_beside(table))
    made = [point for run in runs for point in run["points"]]
    assert sorted(made) == sorted(row["point"] for row in read_table(table))
    assert all(run["origin"]["code"]["commit"] and run["origin"]["again"] for run in runs)


def test_a_table_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match=r"predictor_fit\.csv cannot be written: .*Not a directory"):
        fitted(tmp_path / "file", "llama3_8b", "device=a800_clean")
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "predictor_fit_runs.json").write_text("{")
    with pytest.raises(SettingsError, match=r"predictor_fit_runs\.json is damaged"):
        fitted(tmp_path, "llama3_8b", "device=a800_clean")


def test_a_device_that_is_real_is_a_mistake(tmp_path: Path) -> None:
    with outside_hydra() as job, pytest.raises(SettingsError, match="is not simulated"):
        write_fit(job([f"output.results={tmp_path}", "device=cpu"]))
