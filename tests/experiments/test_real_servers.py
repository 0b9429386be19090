"""The experiment `real_servers` from its settings to its tables, with real processes and HTTP; the rivals are small."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from baselines.servers.environments import Environment
from baselines.servers.launch import Launch
from figures.real_servers_rows import rows
from figures.results import Inputs, Results
from harness.assembly.reading import SettingsError
from harness.assembly.settings import PointSettings
from harness.experiments import servers
from harness.experiments.compose import outside_hydra
from harness.experiments.kinds import run_job
from harness.experiments.rival_server import NotRunError, Rival
from harness.measurement import verdict
from harness.measurement.table_file import read_table
from harness.measurement.verdict import Thresholds
from tests.experiments.points import TINY, profile_text

SERVER = Path(__file__).with_name("numbered_server.py")
CELLS = (
    "cells=[{system:[vllm],system.chunk_tokens:[512,1024]},{system:[sglang,sglang_priority],system.chunk_tokens:[512]}]"
)
CURVE, BACKLOG = 2, 2
CALIBRATED = 1 + 2 * CURVE + BACKLOG
"""Requests of a calibration: one until it is ready, the curve's lengths twice, the backlog."""


def arguments(folder: Path, *more: str) -> list[str]:
    profile = folder / "profile.json"
    profile.write_text(profile_text())
    return [
        *TINY, "experiment=real_servers", f"device.profile={profile}", f"output.results={folder / 'results'}",
        "output.share_machine=true", "workload.window_s=20", "slo=uniform", "slo.uniform.ttft_s=10000", CELLS,
        "reference='vLLM (FCFS)'", "servers.seeds=[0,1]", "servers.rates_of_capacity=[0.6,0.9]", "servers.window_s=0.3",
        "servers.curve_tokens=[16,64]", "servers.curve_repeats=1", f"servers.backlog_requests={BACKLOG}",
        "servers.pilot_window_s=0.2", *more,
    ]  # fmt: skip


def run(folder: Path, *more: str) -> int:
    with outside_hydra() as make:
        return run_job(make(arguments(folder, *more)))


def rivals(folder: Path) -> Callable[[PointSettings], Rival]:
    """vLLM refuses all after calibrating its smaller chunk size, SGLang dies in its first point, one is absent."""

    def rival_of(point: PointSettings) -> Rival:
        system = point.system
        if system.name == "sglang_priority":
            raise NotRunError("there is no .venv-sglang: run `make env-sglang` first")
        env = {"SERVED": "cpu_tiny", "SECONDS": "0.005", "DIED": str(folder / "died")}
        if system.name == "sglang":
            env["DIES_AT"] = str(CALIBRATED + 1)
        elif system.chunk_tokens == 512:
            env["REFUSES_FROM"] = str(CALIBRATED + 2)  # after one more token, for which the pilot waits
        server = "vllm" if system.backend == "vllm" else "sglang"
        launch = Launch(server, (str(SERVER),), env, "no such process")
        found = Environment(
            server=server, variant="cpu", package=server, version="0", python=sys.executable, folder=Path()
        )
        return Rival(launch, found)

    return rival_of


def judge_servers_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the client is late: that is not what is tested."""
    lenient = Thresholds(sender_lag_p99_ms=1e9, loop_lag_p99_ms=1e9, client_cpu_share=1e9, sent_share=0)
    monkeypatch.setattr(verdict, "Thresholds", lambda: lenient)


def nobody(point: PointSettings) -> Rival:
    if point.system.name == "sglang_priority":
        raise NotRunError("there is no .venv-sglang: run `make env-sglang` first")
    raise AssertionError(f"{point.system.name} was started")


def table(folder: Path, name: str = "") -> list[dict[str, str]]:
    return read_table(folder / "results" / "tables" / f"real_servers{name}.csv")


def test_the_whole_experiment_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    judge_servers_only(monkeypatch)
    monkeypatch.setattr(servers, "rival_of", rivals(tmp_path))
    assert run(tmp_path) == 1, "one died, one was not there"
    told = capsys.readouterr().err
    assert "FAILED: the server did not survive the run" in told
    assert "calibration of SGLang (priority), chunk 512: not run: there is no .venv-sglang" in told

    facts = {(row["series"], row["chunk_tokens"]): row for row in table(tmp_path, "_servers")}
    assert {key: row["chosen"] for key, row in facts.items()} == {
        ("vLLM (FCFS)", "512"): "false",
        ("vLLM (FCFS)", "1024"): "true",
        ("SGLang (FCFS)", "512"): "true",
        ("SGLang (priority)", "512"): "false",
    }
    assert facts["SGLang (priority)", "512"]["not_run"].startswith("not run: there is no .venv-sglang")
    assert float(facts["vLLM (FCFS)", "1024"]["capacity_rps"]) < 200, "5 ms each, one at a time"

    points = table(tmp_path)
    pilots = {row["chunk_tokens"]: float(row["attainment"]) for row in points if row["pilot"] == "true"}
    assert pilots == {"512": 0.0, "1024": 1.0}
    measured = [row for row in points if row["pilot"] == "false"]
    assert len(measured) == 2 * 2 * 2 * 2, "two systems, rates, seeds, panels"
    failed = [row for row in measured if row["verdict"] == "SERVER-FAILED"]
    assert {(row["series"], row["seed"], row["rate_of_capacity"], row["verdict_reason"]) for row in failed} == {
        ("SGLang (FCFS)", "0", "0.6", "server_alive")
    }
    assert {row["attainment"] for row in measured if row not in failed} == {"1"}, "the next point starts it again"
    assert {row["slo_speed_factor"] for row in measured if row["panel"] == "raw"} == {
        facts["vLLM (FCFS)", "1024"]["slo_speed_factor"]
    }

    differences = {(row["class"], row["rate_of_capacity"]): row for row in table(tmp_path, "_differences")}
    assert {(row["reference"], row["series"]) for row in differences.values()} == {("vLLM (FCFS)", "SGLang (FCFS)")}
    assert [differences["all", share]["seeds"] for share in ("0.6", "0.9")] == ["1", "2"], "valid points only"
    assert differences["all", "0.9"]["difference"] == differences["all", "0.9"]["difference_high"] == "0"
    assert {row["series"] for row in table(tmp_path, "_ttft")} == {"vLLM (FCFS)", "SGLang (FCFS)"}
    fairness = [row for row in table(tmp_path, "_fairness") if row["class"] == "all"]
    assert {row["point"] for row in fairness} == {row["point"] for row in measured}, "no pilots"
    assert all(float(row["slowdown_mean"]) > 0 for row in fairness if row["served"] != "0")
    drawn = rows(Inputs(Results(tmp_path / "results"), "real_servers"))
    assert set(drawn["kind"]) == {"normalised", "raw", "difference", "unloaded", "server"}

    before = {path: path.read_bytes() for path in (tmp_path / "results").rglob("*") if path.is_file()}
    monkeypatch.setattr(servers, "rival_of", nobody)
    assert run(tmp_path) == 1
    for path in (tmp_path / "results" / "tables").iterdir():
        path.unlink()
    assert run(tmp_path, "output.tables_only=true") == 0
    assert {path: path.read_bytes() for path in (tmp_path / "results").rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ("cells=[{system:[external],system.base_url:[http://127.0.0.1:1]}]", "system=external .* is none of them"),
        ("protocol=steady_state", r"servers\.window_s here"),
        ("servers.seeds=[]", r"servers\.seeds must be a list of different values"),
        ("servers.curve_tokens=[16]", "must be two lengths or more"),
        ("output.tables_only=true", r"output\.tables_only: there is no folder .*results/raw/real_servers"),
    ],
)
def test_a_mistake_is_told_before_anything_is_started(
    changed: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "rival_of", nobody)
    with pytest.raises(SettingsError, match=says):
        run(tmp_path, changed)
    assert not (tmp_path / "results").exists()
