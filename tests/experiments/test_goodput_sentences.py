"""The sentences at the end of a search."""

import csv
from pathlib import Path

from harness.experiments.goodput_sentences import goodput_sentences

ROW = {
    "series": "External server", "max_goodput_bound": "", "max_goodput_rate_scale": "2.13", "max_goodput_rps": "4.26",
    "worst_class": "search", "worst_class_requests": "12", "worst_class_few_requests": "true",
    "max_goodput_worst_class_bound": "below_lowest", "max_goodput_worst_class_rate_scale": "0.5",
    "max_goodput_worst_class_rps": "1", "points_left_out": "0",
}  # fmt: skip


def said(tmp_path: Path, **changes: str) -> list[str]:
    table = tmp_path / "table.csv"
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, list({**ROW, **changes}))
        writer.writeheader()
        writer.writerow({**ROW, **changes})
    return goodput_sentences(table, tmp_path / "not_valid.csv")


def test_both_rates_and_the_class_are_named(tmp_path: Path) -> None:
    assert said(tmp_path) == [
        "External server: max goodput rate_scale 2.13 = 4.26 requests/s; "
        "worst class search (12 requests, too few to rely on): below rate_scale 0.5 = 1 requests/s"
    ]


def test_several_seeds_give_an_interval(tmp_path: Path) -> None:
    (sentence,) = said(tmp_path, max_goodput_low_rate_scale="1.9", max_goodput_high_rate_scale="inf")
    assert sentence.startswith("External server: max goodput rate_scale 2.13 [1.9, –] = 4.26 requests/s; worst class")


def test_a_trace_without_classes_has_no_worst_one(tmp_path: Path) -> None:
    assert said(tmp_path, worst_class="unnamed", max_goodput_bound="above_highest", max_goodput_rps="") == [
        "External server: max goodput at least rate_scale 2.13"
    ]


def test_without_a_valid_point_that_is_said(tmp_path: Path) -> None:
    assert said(tmp_path, max_goodput_rate_scale="", points_left_out="3") == [
        "External server: no max goodput, since none of its 3 points is VALID"
    ]
