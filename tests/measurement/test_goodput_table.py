from pathlib import Path

import pytest

from harness.measurement.goodput_table import (
    MAX_GOODPUT_COLUMNS,
    max_goodput_table,
    rate_points,
    write_max_goodput,
)
from harness.measurement.table_file import TableError, read_table
from harness.measurement.tables import point_row, write_points
from harness.measurement.verdict import judge
from tests.measurement.records import client, facts, record


def point(series: str, rate: float, met: int, seed: int = 0, due: int = 100, **settings: object) -> dict[str, object]:
    """`met` of `due` requests in time; 2 requests per second at rate 1."""
    records = [record(f"r{i}", ttft_ms=10 if i < met else 900) for i in range(due)]
    identity = {"point": f"{series}-{rate}-{seed}", "series": series, "rate_scale": rate, "rate_rps": 2 * rate}
    report = client(due)
    return point_row(facts(**identity, seed=seed, **settings), records, None, report, judge(records, report))


def test_one_row_per_series_with_its_ratio() -> None:
    rows = [
        *(point("A", rate, met, seed) for rate, met in ((2, 100), (4, 80)) for seed in (0, 1)),
        *(point("B", rate, met, seed) for rate, met in ((1, 100), (2, 80)) for seed in (0, 1)),
    ]
    a, b = max_goodput_table(rows, reference="B")
    assert (a["series"], a["seeds"], a["rates"], a["points"], a["points_left_out"]) == ("A", 2, 2, 4, 0)
    assert (a["max_goodput_rate_scale"], a["max_goodput_rps"], a["max_goodput_bound"]) == (
        pytest.approx(3.0), pytest.approx(6.0), "",
    )  # fmt: skip
    assert (a["reference"], a["ratio"], a["ratio_low"], a["ratio_bound"], a["ratio_seeds"]) == (
        "B", pytest.approx(2.0), pytest.approx(2.0), "", 2,
    )  # fmt: skip
    assert "ratio" not in b


def test_points_that_are_not_valid_are_left_out_and_counted() -> None:
    spoilt = {**point("A", 4, 100), "verdict": "CLIENT-BOUND"}
    (row,) = max_goodput_table([point("A", 1, 100), point("A", 2, 95), spoilt])
    assert (row["points"], row["points_left_out"]) == (2, 1)
    assert (row["max_goodput_bound"], row["max_goodput_rate_scale"]) == ("above_highest", 2)


def test_a_series_without_a_valid_point_keeps_an_empty_row() -> None:
    (row,) = max_goodput_table([{**point("A", 1, 100), "verdict": "INCOMPLETE"}])
    assert (row["points"], row["points_left_out"], "max_goodput_rps" in row) == (0, 1, False)


def test_workloads_and_slo_scales_are_never_mixed() -> None:
    rows = [point("A", 1, 100, slo_scale=s, workload=w) for s in (0.4, 1.0) for w in ("sample", "azure_code")]
    table = max_goodput_table(rows)
    assert {(r["workload"], r["slo_scale"]) for r in table} == {
        ("sample", "0.4"), ("sample", "1"), ("azure_code", "0.4"), ("azure_code", "1"),
    }  # fmt: skip


def test_a_series_of_mixed_settings_or_twins_is_refused() -> None:
    with pytest.raises(TableError, match="'A' mixes several values of granularity"):
        max_goodput_table([point("A", 1, 100), point("A", 2, 100, granularity="tile")])
    with pytest.raises(TableError, match="'A': seed 0 has two points at rate 1"):
        max_goodput_table([point("A", 1, 100), point("A", 1, 90)])


def test_a_reference_without_common_seeds_gives_no_ratio() -> None:
    row = max_goodput_table([point("A", 1, 100, seed=0), point("B", 1, 100, seed=1)], reference="B")[0]
    assert (row["ratio_seeds"], "ratio" in row) == (0, False)


def test_text_read_back_gives_the_same_table_and_the_same_bytes(tmp_path: Path) -> None:
    rows = [point("A", rate, met, seed) for rate, met in ((1, 100), (2, 85)) for seed in range(5)]
    write_points(tmp_path / "t.csv", rows)
    write_max_goodput(tmp_path / "a.csv", max_goodput_table(rows))
    write_max_goodput(tmp_path / "b.csv", max_goodput_table(read_table(tmp_path / "t.csv")))
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    assert list(read_table(tmp_path / "a.csv")[0]) == list(MAX_GOODPUT_COLUMNS)


def test_an_unbounded_end_is_written_as_inf(tmp_path: Path) -> None:
    write_max_goodput(tmp_path / "a.csv", max_goodput_table([point("A", 1, 100, seed) for seed in (0, 1)]))
    (row,) = read_table(tmp_path / "a.csv")
    assert (row["max_goodput_rate_scale"], row["max_goodput_bound"]) == ("1", "above_highest")
    assert (row["max_goodput_low_rate_scale"], row["max_goodput_high_rate_scale"]) == ("1", "inf")


def test_rate_points_of_a_class_leave_out_runs_without_it() -> None:
    rows = [
        {"seed": "0", "rate_scale": "1", "verdict": "VALID", "attainment_file": "0.5"},
        {"seed": "1", "rate_scale": "1", "verdict": "VALID", "attainment_file": ""},
    ]
    assert [p.seed for p in rate_points(rows, "attainment_file")] == [0]


def test_runs_of_one_request_have_no_rate_in_requests_per_second(tmp_path: Path) -> None:
    rows = [{**point("A", rate, 100, seed), "rate_rps": 0.0} for rate in (1, 2) for seed in (0, 1)]
    (row,) = max_goodput_table(rows)
    assert (row["max_goodput_rate_scale"], row["max_goodput_bound"]) == (2.0, "above_highest")
    write_max_goodput(tmp_path / "a.csv", [row])
    assert {read_table(tmp_path / "a.csv")[0][f"max_goodput_{end}rps"] for end in ("", "low_", "high_")} == {""}


def test_the_worst_class_over_pooled_seeds_has_columns_of_its_own() -> None:
    rows = [point("A", rate, met, seed) for rate, met in ((2, 100), (4, 80)) for seed in (0, 1)]
    (row,) = max_goodput_table(rows)
    # One class only: its max goodput is that of all.
    assert row["max_goodput_worst_class_rate_scale"] == pytest.approx(3.0)
    assert row["max_goodput_worst_class_low_rps"] == pytest.approx(6.0)
    assert (row["max_goodput_worst_class_bound"], row["worst_class"]) == ("", "text")
    assert (row["worst_class_requests"], row["worst_class_few_requests"]) == (200, False)
