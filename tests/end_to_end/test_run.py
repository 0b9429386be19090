"""`harness.experiments.run` end to end: real servers, real HTTP, the smallest model."""

import csv
import json
import shutil
from pathlib import Path

import pytest

from tests.end_to_end.command import LONG_S, TINY, run, start

SMOKE = (*TINY, "experiment=smoke", "workload.window_s=4", "load.rate_scale=4")
SYSTEMS = {"flowprefill", "flowprefill_tile", "distserve", "chunked_prefill"}


@pytest.fixture(scope="module", name="done")
def _done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the smoke experiment has run."""
    folder = tmp_path_factory.mktemp("smoke")
    status, _, err = run(folder, *SMOKE)
    assert status == 0, err
    return folder


def rows(folder: Path, name: str = "smoke") -> list[dict[str, str]]:
    with (folder / "results" / "tables" / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_every_system_serves_every_due_request(done: Path) -> None:
    table = rows(done)
    assert {row["system"] for row in table} == SYSTEMS
    for row in table:
        assert row["requests_due"] == row["requests_ok"] != "0"
        assert row["requests_failed"] == row["requests_unsent"] == "0"
        assert row["prompt_tokens_mismatched"] == "0"
        assert (row["backend"], row["source"], row["model"]) == ("engine", "measured", "cpu_tiny")
        assert float(row["prefill_tokens_per_s"]) > 0
        assert int(row["decisions"]) > 0
    assert {row["series"] for row in rows(done, "smoke_max_goodput")} == {row["series"] for row in table}


@pytest.mark.slow
def test_a_point_keeps_its_facts_and_where_they_come_from(done: Path) -> None:
    folder = next((done / "results" / "raw" / "smoke").glob("chunked_prefill*"))
    settings = json.loads((folder / "settings.json").read_text())
    assert settings["settings"]["effective"]["chunk_tokens_effective"] == 16  # 512 trace tokens / 32
    assert settings["settings"]["input"]["slo_speed_factor"] > 0
    origin = json.loads((folder / "provenance.json").read_text())
    assert {"code", "command", "versions", "machine", "device", "seed", "config"} <= set(origin)
    assert "--chunk-tokens" in origin["server_command"]
    for file in ("provenance.json", "settings.json", "client_report.json"):
        assert str(done) not in (folder / file).read_text()


@pytest.mark.slow
def test_a_rerun_measures_nothing_and_gives_the_same_tables(done: Path) -> None:
    before = {path: path.read_bytes() for path in (done / "results").rglob("*") if path.is_file()}
    status, _, err = run(done, *SMOKE)
    assert status == 0
    assert "4 of 4 points are finished already" in err
    assert {path: path.read_bytes() for path in (done / "results").rglob("*") if path.is_file()} == before


@pytest.mark.slow
def test_show_walks_a_row_back(done: Path) -> None:
    point = rows(done)[0]["point"]
    status, out, _ = run(done, point, module="harness.experiments.show")
    assert status == 0
    assert f"point      {point}" in out
    assert f"records    results/raw/smoke/{point}" in out
    assert "attainment = " in out
    assert run(done, point.rpartition("-")[2], module="harness.experiments.show")[1] == out
    status, _, err = run(done, "flowprefil", module="harness.experiments.show")
    assert status == 2
    assert "is the beginning of 2 points" in err
    status, _, err = run(done, "nothing-like-it", module="harness.experiments.show")
    assert status == 2
    assert "near it: " in err
    assert "Traceback" not in err


@pytest.mark.slow
def test_c52_two_sweeps_at_once_both_survive(done: Path, tmp_path: Path) -> None:
    shutil.copytree(done / "outputs", tmp_path / "outputs")  # the profile
    sweep = ("-m", *SMOKE, "system=distserve,edf", "load.seed=7")
    both = [start(tmp_path, *sweep), start(tmp_path, *sweep)]
    ended = [(process.communicate(timeout=LONG_S)[1], process.returncode) for process in both]
    assert [status for _, status in ended] == [0, 0], ended
    table = rows(tmp_path)
    assert sorted(row["system"] for row in table) == ["distserve", "edf"]
    assert all(row["requests_due"] == row["requests_ok"] for row in table)
    left = [path.name for path in (tmp_path / "results" / "raw" / "smoke").iterdir()]
    assert sorted(left) == sorted(row["point"] for row in table)


def test_a_class_without_an_slo_is_told_before_anything_is_measured(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("arrival_s,class,input_tokens,output_tokens\n0,chat,10,1\n1,chat,10,1\n")
    own = ("workload=csv", "workload.path=mine.csv", "workload.columns.class=class", "slo=by_task")
    status, _, err = run(tmp_path, *TINY, *own)
    assert status == 2
    (told,) = (line for line in err.splitlines() if not line.startswith((" ", "mine.csv: 2 rows read")))
    assert told.startswith("error: no SLO for class 'chat': slo.tasks names text, ")
    assert not (tmp_path / "results").exists()


def test_a_mistake_is_one_sentence_and_exit_code_2(tmp_path: Path) -> None:
    for arguments, words in (
        (("system=flowprefil",), "system has no option 'flowprefil'; it has: authors_fork, chunked_prefill"),
        (("load.rate_scale=0",), "load.rate_scale must be above 0"),
        (("workload=azure_code", "workload.path=no.csv"), "there is no file no.csv"),
        (("load.rate_scale=1e300",), "load.rate_scale must be at most 1e+06, got 1e+300"),
    ):
        status, out, err = run(tmp_path, *TINY, *arguments)
        assert (status, out) == (2, "")
        assert words in err
        assert len(err.strip().splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] in ([], ["outputs"])
    assert not (tmp_path / "results").exists()
