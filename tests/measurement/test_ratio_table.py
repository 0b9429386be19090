from pathlib import Path

import pytest

from harness.measurement.ratio_table import RATIO_COLUMNS, ratio_table, write_ratios
from harness.measurement.table_file import read_table
from tests.measurement.test_goodput_table import point


def curve(series: str, crossing: float, seed: int) -> list[dict[str, object]]:
    """All in time up to a rate, 80 % at twice the distance: 90 % half-way."""
    return [point(series, rate, met, seed) for rate, met in ((crossing - 1, 100), (crossing + 1, 80))]


def test_every_ordered_pair_has_its_ratio() -> None:
    rows = [
        row for seed in (0, 1) for name, at in (("A", 6.0), ("B", 3.0), ("C", 2.0)) for row in curve(name, at, seed)
    ]
    found = {(r["series"], r["reference"]): r["ratio"] for r in ratio_table(rows)}
    assert found == {
        ("A", "B"): pytest.approx(2.0), ("A", "C"): pytest.approx(3.0), ("B", "A"): pytest.approx(0.5),
        ("B", "C"): pytest.approx(1.5), ("C", "A"): pytest.approx(1 / 3), ("C", "B"): pytest.approx(2 / 3),
    }  # fmt: skip


def test_a_reference_below_its_lowest_rate_gives_a_one_sided_ratio() -> None:
    rows = [row for seed in (0, 1) for row in curve("A", 6.0, seed)]
    rows += [point("B", 2, 50, seed) for seed in (0, 1)]
    (above, below) = ratio_table(rows)
    assert (above["series"], above["ratio"], above["ratio_bound"]) == ("A", pytest.approx(3.0), "at_least")
    assert (below["series"], below["ratio"], below["ratio_bound"]) == ("B", pytest.approx(1 / 3), "at_most")


def test_pairs_nothing_can_be_said_of_and_other_workloads_have_no_row() -> None:
    assert ratio_table([point("A", 2, 50), point("B", 2, 50)]) == []
    assert ratio_table([*curve("A", 3, 0), *curve("B", 3, 1)]) == []
    elsewhere = [{**row, "workload": "azure_code"} for row in curve("B", 3, 0)]
    assert ratio_table([*curve("A", 3, 0), *elsewhere]) == []


def test_invalid_points_are_left_out(tmp_path: Path) -> None:
    spoilt = {**point("A", 9, 100), "verdict": "CLIENT-BOUND"}
    rows = ratio_table([*curve("A", 6, 0), spoilt, *curve("B", 3, 0)])
    write_ratios(tmp_path / "ratios.csv", rows)
    table = read_table(tmp_path / "ratios.csv")
    assert list(table[0]) == list(RATIO_COLUMNS)
    assert [(row["series"], float(row["ratio"])) for row in table] == [("A", 2.0), ("B", 0.5)]
