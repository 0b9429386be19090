"""Measured points beside their simulation: paired exactly, compared by hand, the page a function of its table."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from engine.core.record import RequestRecord, Status
from harness.assembly.reading import SettingsError
from harness.assembly.simulated_device import device_model, predictor_timings
from harness.assembly.simulated_timings import prefill_seconds
from harness.experiments.compose import outside_hydra
from harness.experiments.fidelity import main
from harness.experiments.fidelity_page import Comparison, page, verdicts
from harness.experiments.fidelity_points import around_engine_s, with_measured
from harness.experiments.prepare import Prepared, Preparer
from harness.measurement.table_file import read_table

ROOT = Path(__file__).resolve().parents[2]
ONE = ("system=distserve", "load.rate_scale=0.5", "load.seed=0", "output.workers=1")
MS = 1_000_000


def run(folder: Path, *settings: str) -> int:
    where = ["--measured", str(ROOT / "results"), "--results", str(folder), "--page", str(folder / "page.md")]
    return main([*where, *settings])


def ready() -> Prepared:
    with outside_hydra() as make:
        job = make(["experiment=fidelity_points", *ONE])
        return Preparer(lambda _: None, job.user).prepare(job.compose({}))


def test_the_committed_page_is_that_of_the_committed_table() -> None:
    rows = read_table(ROOT / "results" / "tables" / "fidelity.csv")
    assert page(rows) == (ROOT / "docs" / "fidelity.md").read_text(encoding="utf-8")
    assert {row["world"] for row in rows} == {"measured", "simulated", "delayed", "as_measured"}


def test_one_point_from_end_to_end_the_same_bytes_twice(tmp_path: Path) -> None:
    first, again = tmp_path / "first", tmp_path / "again"
    assert run(first, *ONE) == run(again, *ONE) == run(again, *ONE) == 0
    for name in ("tables/fidelity.csv", "tables/fidelity_points.csv", "page.md"):
        assert (first / name).read_bytes() == (again / name).read_bytes()
    rows = {row["world"]: row for row in read_table(first / "tables" / "fidelity.csv")}
    committed = read_table(ROOT / "results" / "tables" / "goodput_vs_rate.csv")
    (real,) = [row for row in committed if row["point"] == rows["measured"]["point"]]
    assert rows["measured"]["attainment"] == real["attainment"]
    assert 0 < float(rows["simulated"]["attainment"]) < 1
    # As fast as the run was, it took as long as the run did.
    busy = [float(rows[world]["prefill_tokens_per_s"]) for world in ("measured", "as_measured")]
    assert busy[0] == pytest.approx(busy[1], rel=0.01)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("slo.scale=0.9", "was measured with other settings: slo_scale"),
        ("load.rate_scale=2", "has 0 measured points of DistServe (FCFS) at rate 2, seed 0"),
        ("workload.window_s=60", "was measured with other settings: workload"),
        ("device=a800_clean", "was measured with other settings: trace or SLO speed factor"),
    ],
)
def test_what_was_not_measured_with_the_same_settings_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: str, words: str
) -> None:
    given = [one for one in ONE if one.partition("=")[0] != change.partition("=")[0]]
    assert run(tmp_path, *given, change) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "tables").exists()


def test_slowed_down_the_device_is_and_its_predictor_is_not() -> None:
    plain = ready()
    slow = with_measured(plain, 1.25, 0.004)
    points = plain.settings, slow.settings
    devices = [device_model(point) for point in points]
    assert prefill_seconds(devices[1], 700) == pytest.approx(1.25 * prefill_seconds(devices[0], 700))
    told = [predictor_timings(point, device) for point, device in zip(points, devices, strict=True)]
    assert told[0] == told[1]


def test_a_slowdown_needs_measured_times() -> None:
    with outside_hydra() as make:
        job = make(["experiment=sim_smoke", "device.simulation.slowdown=1.1"])
        with pytest.raises(SettingsError, match=r"conflicts with device\.simulation\.slowdown"):
            Preparer(lambda _: None, job.user).prepare(job.compose({}))


def test_the_time_around_the_engine_is_that_of_lone_short_prompts() -> None:
    point = ready()
    assert point.settings.device.simulation is not None
    own = dataclasses.replace(point.settings.device.simulation, profile=point.settings.device.profile)
    device = dataclasses.replace(point.settings.device, simulation=own)
    point = dataclasses.replace(point, settings=dataclasses.replace(point.settings, device=device))
    assert point.profile is not None
    prefill_ms = 1e3 * point.profile.seconds_of()(16)
    records = [
        record("alone", 0, 10 * MS, 16),
        record("at once after it", 10 * MS, 30 * MS, 16),
        record("too long", 100 * MS, 150 * MS, 64),
        record("another comes", 200 * MS, 210 * MS, 16),
        record("the other", 205 * MS, 220 * MS, 16),
        record("alone again", 300 * MS, 312 * MS, 16),
    ]
    found = [1e3 * seconds for seconds in around_engine_s(records, point, 2.0)]
    assert found == pytest.approx([10 - 2 * prefill_ms, 12 - 2 * prefill_ms])


def test_a_line_holds_when_attainment_and_blocking_do() -> None:
    rows: list[dict[str, str]] = []
    for series, attained, blocked in (
        ("A", "0.92", "1.2"),
        ("B", "0.94", "1.0"),
        ("C", "0.9", "1.3"),
        ("D", "0.9", ""),
    ):
        for world, values in (("measured", ("0.9", blocked and "1.0")), ("simulated", (attained, blocked))):
            attainment, blocking = values
            rows.append(row(series, world, attainment=attainment, blocking_mean_ms=blocking))
    lines = verdicts(Comparison(rows), "simulated").splitlines()
    assert [line.split(" | ")[-1] for line in lines[2:6]] == ["yes |", "**no** |", "**no** |", "yes |"]
    assert lines[2].split(" | ")[2:8] == ["90.0", "92.0", "+2.0", "1.00", "1.20", "+20%"]
    assert lines[-1] == "2 of 4 lines within both tolerances."


def record(name: str, due_ns: int, token_ns: int, tokens: int) -> RequestRecord:
    return RequestRecord(
        name, "text", tokens, 1, 100 * MS, None, due_ns, due_ns, token_ns, token_ns, 1, status=Status.OK
    )


def row(series: str, world: str, **cells: Any) -> dict[str, str]:
    return {"series": series, "rate_scale": "1", "seed": "0", "world": world, **cells}
