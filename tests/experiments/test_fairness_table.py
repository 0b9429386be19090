"""Whose unloaded time a point's slowdowns are over, and what the table holds."""

from dataclasses import replace
from pathlib import Path

import pytest

from harness.experiments import fairness_table
from harness.experiments.fairness_table import ProfiledTimes, fairness_rows, write_fairness
from harness.experiments.measure import recorded_settings
from harness.experiments.profile_step import read_profile
from harness.measurement.store import Point
from harness.measurement.table_file import read_table
from tests.experiments.points import measured, prepared, profile_text


@pytest.fixture(name="point")
def _point(tmp_path: Path) -> Point:
    """Two requests of 8 tokens, after 50 and 500 ns, whose profile says 0.8 ms for 8 tokens."""
    profile = tmp_path / "profile.json"
    profile.write_text(profile_text())
    (ready,) = prepared(str(profile))
    return replace(measured(ready, met=1, missed=1), settings=recorded_settings(ready))


def test_slowdowns_are_over_the_profile_the_point_was_measured_with(point: Point) -> None:
    times = ProfiledTimes()
    rows = fairness_rows(point, times.of(point))
    assert [(row["class"], row["n"], row["served"], row["few_samples"]) for row in rows] == [
        ("all", 2, 2, True),
        ("text", 2, 2, True),
    ]
    assert rows[0]["slowdown_mean"] == pytest.approx(275e-9 / 0.8e-3)
    assert rows[0]["jain"] == pytest.approx(550**2 / (2 * (50**2 + 500**2)))
    assert (rows[0]["point"], rows[0]["series"]) == (point.facts.point, "FlowPrefill (operator)")


def test_another_profile_in_its_place_is_not_taken(point: Point, tmp_path: Path) -> None:
    (tmp_path / "profile.json").write_text(profile_text(0.0002))
    (row, _) = fairness_rows(point, ProfiledTimes().of(point))
    assert (row["completion_mean_s"], row["slowdown_mean"], row["jain"]) == (pytest.approx(275e-9), None, None)


def test_one_measured_when_it_was_needed_is_found_again_by_its_content(point: Point, tmp_path: Path) -> None:
    cache = tmp_path / "profiles"
    (cache / "machine").mkdir(parents=True)
    (cache / "machine" / "a.json").write_text(profile_text(0.0002))
    (tmp_path / "profile.json").rename(cache / "machine" / "b.json")
    unnamed = replace(point, settings={**point.settings, "device": {"profile": None}})
    found = ProfiledTimes(cache).of(unnamed)
    assert found is not None
    assert found(8) == read_profile(cache / "machine" / "b.json").seconds_of()(8)


def test_an_external_server_has_no_profile(point: Point) -> None:
    assert ProfiledTimes().of(replace(point, settings={"input": {"profile_sha256": ""}})) is None
    assert ProfiledTimes().of(replace(point, settings={})) is None


def test_a_large_table_is_packed(point: Point, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = fairness_rows(point, None)
    assert write_fairness(tmp_path, "x", rows).name == "x_fairness.csv"
    monkeypatch.setattr(fairness_table, "MOST_BYTES", 100)
    path = write_fairness(tmp_path, "x", rows)
    assert path.name == "x_fairness.csv.gz"
    assert [row["class"] for row in read_table(path)] == ["all", "text"]
    assert [one.name for one in tmp_path.glob("x*")] == [path.name]
