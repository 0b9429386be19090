"""Simulated points: kept in one store, the same bytes for the same seeds, resumable, walked back by `show`."""

import json
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.assembly.reading import SettingsError
from harness.experiments.bound_store import BOUNDS, add_bounds, bound_key, read_bounds
from harness.experiments.cells import expand, read_cells, without_user_axes
from harness.experiments.compose import outside_hydra
from harness.experiments.job_runner import Failure, JobRunner, Kind
from harness.experiments.kinds import run_job
from harness.experiments.measure import recorded_settings
from harness.experiments.output import OutputSettings
from harness.experiments.point_origin import describe, find_point
from harness.experiments.prepare import Prepared, Preparer
from harness.experiments.reference_check import crossing_rate
from harness.experiments.simulate_point import simulate_or_fail
from harness.experiments.simulated_store import POINTS, RUNS, read_runs, read_simulated
from harness.measurement.bound import Bound
from harness.measurement.store import StoreError
from harness.measurement.table_file import TableError, read_table
from harness.measurement.tables import with_bound

SMOKE = ("experiment=sim_smoke", "load.seed=0", "output.workers=1")


def run(results: Path, *overrides: str) -> int:
    with outside_hydra() as make:
        return run_job(make([*SMOKE, f"output.results={results}", *overrides]))


def prepared(*overrides: str) -> list[Prepared]:
    with outside_hydra() as make:
        job = make([*SMOKE, *overrides])
        axes = expand(without_user_axes(read_cells(job.config["cells"]), job.user))
        return Preparer(lambda _: None, job.user).prepare_all(job, axes)


@pytest.fixture(scope="module", name="done")
def _done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of the smoke experiment."""
    results = tmp_path_factory.mktemp("results")
    assert run(results) == 0
    return results


def test_columns_are_those_of_measured_points_and_the_source_is_told(done: Path) -> None:
    committed = Path(__file__).resolve().parents[2] / "results" / "tables" / "goodput_vs_rate.csv"
    rows, measured = read_table(done / "tables" / "sim_smoke.csv.gz"), read_table(committed)
    assert set(measured[0]) <= set(rows[0])
    assert {(row["backend"], row["source"], row["verdict"]) for row in rows} == {("simulator", "simulated", "VALID")}
    assert all(row["requests_due"] == row["requests_ok"] == "63" for row in rows)
    assert all(0 < float(row["fraction_of_bound"]) <= 1 for row in rows)
    by_load = {(row["rate_scale"], row["bound_attainment"]) for row in rows}
    assert len(by_load) == 2  # one bound for all systems under one load


def test_the_same_seeds_give_the_same_bytes_in_one_go_or_in_two(done: Path, tmp_path: Path) -> None:
    assert run(tmp_path, "load.rate_scale=1") == 0
    assert run(tmp_path) == 0
    for name in ("raw/sim_smoke/" + POINTS, "raw/sim_smoke/" + BOUNDS, "tables/sim_smoke.csv.gz"):
        assert (tmp_path / name).read_bytes() == (done / name).read_bytes()
    assert len(read_runs(tmp_path / "raw" / "sim_smoke")) == 2


def test_a_rerun_simulates_nothing(done: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (done / "raw" / "sim_smoke" / RUNS).read_bytes()
    assert run(done) == 0
    assert "6 of 6 points are finished already" in capsys.readouterr().err
    assert (done / "raw" / "sim_smoke" / RUNS).read_bytes() == before


def test_show_walks_a_simulated_point_back_and_its_command_runs_it_alone(
    done: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    point = read_table(done / "tables" / "sim_smoke.csv.gz")[0]["point"]
    text = describe(find_point(done, point.rpartition("-")[2]), done)
    assert f"point      {point}" in text
    assert "seed       0" in text
    assert "  attainment = " in text
    assert "  device.simulation.model = roofline" in text
    assert f"output.only={point} output.redo=true" in text
    assert run(tmp_path, f"output.only={point}", "output.redo=true") == 0
    assert list(read_simulated(tmp_path / "raw" / "sim_smoke")) == [point]
    with pytest.raises(SettingsError, match="the experiment has no point nope"):
        run(tmp_path, "output.only=nope")


def test_a_damaged_store_is_told_and_not_overwritten(tmp_path: Path) -> None:
    assert run(tmp_path, "load.rate_scale=1", "system=distserve") == 0
    store = tmp_path / "raw" / "sim_smoke" / POINTS
    store.write_bytes(store.read_bytes()[:-20])
    with pytest.raises(StoreError, match="is damaged"):
        read_simulated(store.parent)
    with pytest.raises(SettingsError, match="is damaged"):
        run(tmp_path)


def test_a_damaged_account_of_runs_is_told_and_not_overwritten(tmp_path: Path) -> None:
    assert run(tmp_path, "load.rate_scale=1", "system=distserve") == 0
    runs = tmp_path / "raw" / "sim_smoke" / RUNS
    (point,) = read_simulated(runs.parent)
    damaged = runs.read_bytes()[:-20]
    runs.write_bytes(damaged)
    with pytest.raises(SettingsError, match=r"simulated_runs\.json is damaged"):
        run(tmp_path)
    assert "simulated_runs.json is damaged" in describe(find_point(tmp_path, point), tmp_path)
    assert runs.read_bytes() == damaged


def test_a_reference_of_an_earlier_run_is_known(done: Path) -> None:
    assert run(done, "system=flowprefill", "reference='DistServe (FCFS)'") == 0


def test_the_kv_pool_is_the_memory_left_beside_the_weights() -> None:
    def pool(*overrides: str) -> tuple[int, str]:
        (ready,) = prepared("system=flowprefill", "load.rate_scale=1", *overrides)
        return ready.settings.model.kv_tokens, ready.point.rpartition("-")[2]

    assert pool("model.kv_tokens=null") == pool()
    assert pool("model=llama3_70b", "model.kv_tokens=null")[0] == 355824
    assert pool("device=h200", "model.kv_tokens=null")[0] == 819152


def test_every_seed_and_setting_is_a_point_of_its_own() -> None:
    assert len({ready.point for ready in prepared()}) == 6
    (one,) = prepared("system=flowprefill", "load.rate_scale=1")
    for change in ("device.simulation.noise_cv=0.02", "device=a800_release", "device.simulation.round_s=0.001"):
        (other,) = prepared("system=flowprefill", "load.rate_scale=1", change)
        assert other.point != one.point
    assert other.device == "a800_clean, simulation.round_s=0.001"


def test_noise_and_predictor_errors_are_drawn_by_the_seed() -> None:
    rows = [
        simulate_or_fail(prepared("system=flowprefill", "load.rate_scale=1", f"device.simulation.{setting}")[0])
        for setting in ("noise_cv=0", "noise_cv=0.05", "noise_cv=0.05", "predictor_error_cv=0.5")
    ]
    assert not any(isinstance(row, Failure) for row in rows)
    ttft: list[Any] = [row.row["ttft_p50_s"] for row in rows]  # type: ignore[union-attr]
    assert ttft[0] != ttft[1] == ttft[2]


def test_rivals_never_pay_for_the_releases_wait() -> None:
    def busy(device: str, system: str) -> Any:
        found = simulate_or_fail(prepared(f"system={system}", f"device={device}", "load.rate_scale=1")[0])
        assert not isinstance(found, Failure), found
        return found.row["prefill_tokens_per_s"]

    assert busy("a800_release", "distserve") == busy("a800_clean", "distserve")
    assert busy("a800_release", "flowprefill") < 0.95 * busy("a800_clean", "flowprefill")


def test_other_models_are_stretched_by_their_speed_and_the_papers_own_is_not() -> None:
    stretch = "device.simulation.stretch=model"
    factors = {
        model: prepared(f"model={model}", stretch, "system=flowprefill", "load.rate_scale=1")[0].given.slo_speed_factor
        for model in ("llama3_8b", "qwen2_5_14b", "llama3_70b")
    }
    assert factors["llama3_8b"] == 1.0
    assert 0.7 < factors["qwen2_5_14b"] < 1.5 < factors["llama3_70b"]


def test_a_bound_belongs_to_requests_and_device_not_to_the_system(tmp_path: Path) -> None:
    assert len({bound_key(settings) for settings in _recorded()}) == 1
    assert len({bound_key(settings) for settings in _recorded() + _recorded("slo.scale=0.8")}) == 2
    add_bounds(tmp_path, {"b": Bound(0.5, 0.25)}, 2048)
    add_bounds(tmp_path, {"a": Bound(None, None), "b": Bound(0.75, 0.5)}, 1024)
    assert read_bounds(tmp_path, 1024) == {"a": Bound(None, None), "b": Bound(0.75, 0.5)}
    assert read_bounds(tmp_path, 2048) == {"b": Bound(0.5, 0.25)}
    assert read_bounds(tmp_path, 512) == {}
    # Which holds for every system: that for the largest batches.
    assert read_bounds(tmp_path) == {"a": Bound(None, None), "b": Bound(0.5, 0.25)}
    add_bounds(tmp_path, {"b": Bound(0.6, 0.25)}, 2048)
    assert read_bounds(tmp_path)["b"] == Bound(0.6, 0.25)


def test_the_bound_is_of_the_requests_that_count(tmp_path: Path) -> None:
    steady = ["protocol=steady_state", "protocol.min_arrivals_s=40", "system=flowprefill", "load.rate_scale=7"]
    assert run(tmp_path, *steady, "protocol.discard_first_s=null", "+bound.worst_class=false") == 0
    assert run(tmp_path, *steady, "protocol.discard_first_s=10", "+bound.worst_class=false") == 0
    rows = read_table(tmp_path / "tables" / "sim_smoke.csv.gz")
    whole, later = sorted(rows, key=lambda row: -int(row["attainment_n"]))
    assert whole["requests_due"] == later["requests_due"] == whole["attainment_n"]
    assert 0.6 < int(later["attainment_n"]) / int(whole["attainment_n"]) < 0.9
    assert whole["bound_attainment"] != later["bound_attainment"]
    assert whole["bound_attainment_worst_class"] == later["bound_attainment_worst_class"] == ""

    assert run(tmp_path, *steady, "protocol.discard_first_s=10") == 0  # asks for what was left out
    again = sorted(read_table(tmp_path / "tables" / "sim_smoke.csv.gz"), key=lambda row: -int(row["attainment_n"]))
    assert [row["bound_attainment"] for row in again] == [whole["bound_attainment"], later["bound_attainment"]]
    assert [row["bound_attainment_worst_class"] == "" for row in again] == [True, False]


def test_an_attainment_above_its_bound_is_an_error() -> None:
    assert with_bound({"attainment": 0.6}, Bound(0.8, 0.5))["fraction_of_bound"] == pytest.approx(0.75)
    with pytest.raises(TableError, match="above its bound"):
        with_bound({"point": "p", "attainment": 0.9}, Bound(0.8, 0.5))


def test_a_bound_for_smaller_batches_than_a_systems_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"bound\.batch_tokens=512 is below the 2048 tokens of FlowPrefill"):
        run(tmp_path, "bound.batch_tokens=512", "system=flowprefill")


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["device=a800_clean", "system=external", "system.base_url=http://h:1"], "is simulated; it conflicts"),
        (["device.simulation.model=curve"], "model=curve conflicts with device.simulation.accelerator"),
        (["device.simulation.rounds=poll"], "rounds=poll needs device.simulation.poll_s"),
        (["device.simulation.poll_s=0.1"], "rounds=event conflicts with device.simulation.poll_s"),
        (["device.kind=cpu"], "device.kind=cpu conflicts with device.simulation"),
        (["device=cpu", "device.kind=simulated"], "device.kind=simulated needs device.simulation"),
        (["device=a800_envelope", "+model.tensor_parallel=2"], "tensor_parallel needs a roofline device"),
        (["device=cpu", "model=llama3_70b"], "model.kv_tokens=null takes the KV pool from the memory of a simulated"),
        (["device.simulation.accelerator.peak_flops=0"], "accelerator peak_flops must be above 0"),
    ],
)
def test_settings_that_contradict_each_other_are_one_sentence(overrides: Sequence[str], words: str) -> None:
    system = () if any(one.startswith("system=") for one in overrides) else ("system=flowprefill",)
    told = _told(*system, *overrides)
    assert words in told
    assert "\n" not in told


def test_the_crossing_rate_is_found_within_the_tolerance() -> None:
    assert crossing_rate(lambda rate: 1.0 if rate <= 13.6 else 0.0, 0.9, 0.01) == pytest.approx(13.6, rel=0.01)
    assert crossing_rate(lambda rate: 1.0 if rate <= 0.07 else 0.0, 0.9, 0.01) == pytest.approx(0.07, rel=0.01)
    for never in (0.0, 1.0):
        with pytest.raises(SettingsError, match="is not met even at" if never == 0 else "is met even at"):
            crossing_rate(lambda _, share=never: share, 0.9, 0.01)  # type: ignore[misc]


def _halve(number: int) -> float | Failure:
    return Failure("odd") if number % 2 else number / 2


def test_one_failing_job_does_not_stop_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    kept: dict[str, float] = {}
    kind = Kind("numbers", _halve, name=str, weight=lambda _: 1.0, say=str, keep=kept.update)
    runner = JobRunner(OutputSettings(results="results", workers=1))
    assert runner.run([2, 3, 4], kind) == kept == {"2": 1.0, "4": 2.0}
    assert runner.status == 1
    assert "3: FAILED: odd" in capsys.readouterr().err
    stopping = JobRunner(OutputSettings(results="results", workers=1, fail_fast=True))
    assert stopping.run([2, 3, 4], kind) == {"2": 1.0}


def _told(*overrides: str) -> str:
    """When the settings are read, or at the latest by the point itself."""
    try:
        found = simulate_or_fail(prepared(*overrides)[0])
    except SettingsError as error:
        return str(error)
    assert isinstance(found, Failure)
    return found.sentence


def _recorded(*overrides: str) -> list[dict[str, Any]]:
    return [recorded_settings(ready) for ready in prepared("load.rate_scale=1", *overrides)]


def test_the_device_runs_on_a_profile_of_its_own_apart_from_the_predictors(tmp_path: Path) -> None:
    measured = Path(__file__).resolve().parents[2] / "profiles" / "amd_epyc_1_threads_float32" / "cpu_demo.json"
    moved, other = tmp_path / "moved.json", tmp_path / "other.json"
    moved.write_bytes(measured.read_bytes())
    content = json.loads(measured.read_text())
    for entry in content["operators"]:
        entry["seconds"] *= 2
    other.write_text(json.dumps(content))
    on_cpu = (
        "device=cpu_simulated",
        "model=cpu_demo",
        "workload.window_s=120",
        "system=flowprefill",
        "load.rate_scale=1",
    )
    ready = [
        prepared(*on_cpu, f"device.profile={first}", f"device.simulation.profile={second}")[0]
        for first, second in ((measured, measured), (measured, moved), (measured, other), (other, moved))
    ]
    assert ready[0].point == ready[1].point  # wherever the file lies
    assert len({one.point for one in ready}) == 3
    assert ready[0].given.slo_speed_factor == ready[2].given.slo_speed_factor == 0.518137251
    assert recorded_settings(ready[2])["input"]["device_profile_sha256"] != ready[2].given.profile_digest
    with pytest.raises(SettingsError, match=r"model=roofline conflicts with device\.simulation\.profile"):
        prepared(f"device.simulation.profile={measured}")


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (("device.simulation.round_s=1e300",), "device.simulation.round_s must be at most 10, got 1e+300"),
        (("device.simulation.switch_s=1e6",), "device.simulation.switch_s must be at most 10, got 1e+06"),
        (("system=chunked_prefill", "system.chunk_tokens=1"), "system.chunk_tokens must be at least 16, got 1"),
        (("reference=nobody",), "reference=nobody: no system has that series; near it: "),
        (
            ("workload.output_tokens=trace", "workload.max_input=4000", "model.max_context_tokens=4001"),
            "requests need more than the model's 4001 positions",
        ),
        (("system=flowprefill", "system.predictor=operator_sum"), "operator_sum cannot be fitted: the profile"),
        (
            ("device.simulation.serial_rounds=true", "device.simulation.round_s=0"),
            "serial_rounds needs a round_s",
        ),
        (("model=llama3_70b", "model.tensor_parallel=1"), "its weights take 141.1 GB of each, and 64.43 GB are left"),
        (
            ("model.kv_tokens=369009",),
            "model.kv_tokens=369009 does not fit device=a800_clean: llama3_8b leaves",
        ),
        (
            ("device=a800_envelope", "model.kv_tokens=null"),
            "model.kv_tokens=null takes the KV pool from the",
        ),
        (("device.simulation.rounds=poll", "device.simulation.poll_s=1e-12"), "poll_s must be at least 1e-09"),
        (("device=a800_envelope", "device.simulation.rounds=operator"), "rounds=operator conflicts with model=curve"),
        (("cells=3",), "cells must be a list of axes"),
        (("model.checkpoint=nowhere",), "model nowhere is neither a folder nor one of"),
        (("model.tensor_parallel=3",), "32 query heads do not divide into 3 ranks"),
        (("device.simulation.noise_cv=0.1",), "a bound needs device.simulation.noise_cv=0"),
        (("bound.batch_tokens=1024", "system=flowprefill"), "bound.batch_tokens=1024 is below the 2048 tokens of"),
        (("device=cpu_simulated", "bound=null"), "is a profile of cpu_demo, and model=llama3_8b is llama3_8b"),
        (
            ("device=cpu_simulated", "model=cpu_demo", "device.simulation.profile=no.json"),
            "device.simulation.profile: cannot read no.json",
        ),
    ],
)
def test_a_mistake_is_told_before_anything_is_simulated(tmp_path: Path, overrides: tuple[str, ...], words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        run(tmp_path, *overrides)
    assert words in str(caught.value)
    assert not (tmp_path / "raw").exists()


def test_a_damaged_store_is_told_before_anything_is_simulated_anew(tmp_path: Path) -> None:
    store = tmp_path / "raw" / "sim_smoke" / POINTS
    store.parent.mkdir(parents=True)
    store.write_bytes(b"no gzip")
    with pytest.raises(SettingsError, match="is damaged"):
        run(tmp_path, "output.redo=true")


def test_what_cannot_be_kept_is_told_and_tried_again(capsys: pytest.CaptureFixture[str]) -> None:
    def full(_: object) -> None:
        raise OSError(28, "No space left on device")

    runner = JobRunner(OutputSettings(results="results", workers=1))
    assert runner.run([2], Kind("numbers", _halve, str, lambda _: 1.0, str, full)) == {"2": 1.0}
    assert runner.status == 1
    assert "1 numbers could not be kept: No space left on device; once that is mended" in capsys.readouterr().err


def _pressed_twice(number: int) -> float:
    for _ in range(2 * (number == 4)):
        signal.raise_signal(signal.SIGINT)
    return number / 2


def test_a_second_interrupt_ends_the_job_under_way_in_this_process(capsys: pytest.CaptureFixture[str]) -> None:
    kept: dict[str, float] = {}
    kind = Kind("numbers", _pressed_twice, str, lambda _: 1.0, str, kept.update)
    runner = JobRunner(OutputSettings(results="results", workers=1))
    assert runner.run([2, 4, 6], kind) == kept == {"2": 1.0}
    assert runner.status == 130
    assert "stopped: 1 of 3 numbers are kept" in capsys.readouterr().err
