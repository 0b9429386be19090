"""A search over measured points, as a user has it: what is kept, listed, said, and the exit status. No server runs."""

import asyncio
import csv
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.core.record import ClientReport
from harness.assembly.reading import SettingsError
from harness.experiments import campaign as campaign_module
from harness.experiments.compose import outside_hydra
from harness.experiments.goodput_search import search_rates
from harness.experiments.goodput_sentences import goodput_sentences
from harness.experiments.measure import Measured
from harness.experiments.output import OutputSettings
from harness.experiments.point_origin import describe, find_point
from harness.experiments.prepare import Prepared
from harness.experiments.write_tables import write_tables
from harness.measurement.store import point_state, write_point
from tests.experiments.points import TINY, measured, profile_text

BOUND, GOOD = "CLIENT-BOUND", "VALID"
Judge = Callable[[float, int], str]
"""The verdict on a rate's measurement of this number, from 0."""


class Machine:
    """A stand-in for `measure`: a system of this capacity and a client that is judged as told. Remembers the rates."""

    def __init__(self, capacity: float, judge: Judge) -> None:
        self.rates: list[float] = []
        self._capacity = capacity
        self._judge = judge

    async def __call__(self, ready: Prepared, folder: Path, *_: Any) -> Measured:
        rate = ready.settings.load.rate_scale
        good = self._judge(rate, self.rates.count(rate)) == GOOD
        self.rates.append(rate)
        # What is not VALID claims the opposite of the truth: nobody may listen to it.
        point = (
            measured(ready, met=10, missed=0) if (rate <= self._capacity) is good else measured(ready, met=0, missed=10)
        )
        if not good:
            client: ClientReport = dataclasses.replace(point.client, loop_lag_p99_ns=80_000_000)
            point = dataclasses.replace(point, client=client)
        write_point(folder, point)
        return Measured(point, None)


@pytest.fixture(name="search")
def _search(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., tuple[int, list[float]]]:
    profile = tmp_path / "profile.json"
    profile.write_text(profile_text())

    def search(capacity: float, judge: Judge, *overrides: str, redo: bool = False) -> tuple[int, list[float]]:
        """Exit status and the rates measured."""
        machine = Machine(capacity, judge)
        monkeypatch.setattr(campaign_module, "measure", machine)
        output = OutputSettings(results=str(tmp_path / "results"), share_machine=True, redo=redo)
        with outside_hydra() as make:
            job = make([
                *TINY, "experiment=max_goodput", f"device.profile={profile}", "search.low=1", "search.high=64",
                "search.start=2", "search.budget=30", *overrides,
            ])  # fmt: skip
            status = asyncio.run(search_rates(job, ({},), output))
        write_tables(tmp_path / "results", "max_goodput", None, lambda _: None)
        return status, machine.rates

    return search


def rows(tmp_path: Path, name: str) -> list[dict[str, str]]:
    with (tmp_path / "results" / "tables" / f"max_goodput{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def said(tmp_path: Path) -> list[str]:
    tables = tmp_path / "results" / "tables"
    return goodput_sentences(tables / "max_goodput_max_goodput.csv", tables / "max_goodput_not_valid.csv")


def test_above_what_the_client_can_do_the_answer_is_a_lower_bound_that_says_so(
    search: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The server could do 100, the client can do 5: each rate above is measured twice and gone around."""
    status, rates = search(100, lambda rate, _: BOUND if rate > 5 else GOOD, "search.tolerance=0.1")
    assert (status, rates) == (0, [2, 4, 8, 8, 5.657, 5.657, 4.757, 5.188, 5.188])
    told = capsys.readouterr().err
    assert (
        "is at least rate_scale 4.757; above it, at rate_scale 5.188, the client, not the server, was the bottleneck "
        "(9 measurements at 6 rates, 6 of them not VALID)"
    ) in told
    assert (
        "CLIENT-BOUND says nothing of the server: 80 ms late wake-ups of the client's loop at p99 (at most 50)" in told
    )
    (found,) = rows(tmp_path, "_max_goodput")
    assert (found["max_goodput_rate_scale"], found["max_goodput_bound"]) == ("4.757", "above_highest")
    assert (found["points"], found["points_left_out"]) == ("3", "3")
    assert "at least rate_scale 4.76 " in said(tmp_path)[0]
    assert "(above it the client, not the server, was the bottleneck)" in said(tmp_path)[0]


def test_every_measurement_that_is_not_valid_is_listed_with_its_reason(
    search: Callable[..., Any], tmp_path: Path
) -> None:
    status, rates = search(3, lambda rate, number: BOUND if rate == 2 and number == 0 else GOOD, "search.tolerance=1")
    assert (status, rates) == (0, [2, 2, 4])
    assert [(row["rate_scale"], row["verdict"], row["attainment"]) for row in rows(tmp_path, "")] == [
        ("2", GOOD, "1"), ("4", GOOD, "0"),
    ]  # fmt: skip
    (listed,) = rows(tmp_path, "_not_valid")
    assert (listed["rate_scale"], listed["try"], listed["verdict"], listed["verdict_reason"]) == (
        "2", "1", BOUND, "loop_lag_p99",
    )  # fmt: skip
    (found,) = rows(tmp_path, "_max_goodput")
    assert float(found["max_goodput_rate_scale"]) == pytest.approx(2 + 0.1 * 2)  # 1 at 2, 0 at 4
    # Its id leads to it, and the point's own id, or its beginning, to the point.
    raw = tmp_path / "results"
    aside = find_point(raw, f"{listed['point']}.try1")
    assert "(a try of a search, measured again)" in describe(aside, raw)
    assert find_point(raw, listed["point"][:-1]).name == listed["point"]
    assert find_point(raw, listed["point"].rpartition("-")[2]).name == listed["point"]


def test_every_rate_is_tried_with_all_seeds_whose_mean_steers(
    search: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One seed's first measurement at 4 is not VALID: it alone is measured again."""
    bad = iter([False] * 3 + [True])  # 2 with both seeds, 4 with the first; then 4 with the second
    status, rates = search(
        3, lambda *_: BOUND if next(bad, False) else GOOD, "search.tolerance=1", "search.seeds=[5,6]"
    )
    assert (status, rates) == (0, [2, 2, 4, 4, 4])
    assert "seeds 5, 6 is rate_scale 2.2 (3 measurements at 2 rates, 1 of them not VALID)" in capsys.readouterr().err
    assert sorted((row["rate_scale"], row["seed"], row["verdict"]) for row in rows(tmp_path, "")) == [
        ("2", "5", GOOD), ("2", "6", GOOD), ("4", "5", GOOD), ("4", "6", GOOD),
    ]  # fmt: skip


@pytest.mark.parametrize("setting", ["load.seed=1", "search.seeds=[]", "search.seeds=[1,1]"])
def test_seeds_that_cannot_be_are_refused(search: Callable[..., Any], setting: str) -> None:
    with pytest.raises(SettingsError, match="seeds"):
        search(3, lambda *_: GOOD, setting)


def test_without_a_valid_measurement_nothing_is_said_and_the_exit_status_says_it(
    search: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, rates = search(100, lambda *_: BOUND)
    assert (status, rates) == (1, [2, 2, 1, 1])
    assert (
        "is not known: down to rate_scale 1 the client, not the server, was the bottleneck "
        "(4 measurements at 2 rates, 4 of them not VALID)"
    ) in capsys.readouterr().err
    assert said(tmp_path)[0].endswith("no max goodput, since none of its 2 points is VALID (CLIENT-BOUND)")


def test_the_same_search_again_measures_nothing_and_a_redo_begins_anew(
    search: Callable[..., Any], tmp_path: Path
) -> None:
    def judge(rate: float, number: int) -> str:
        return BOUND if rate == 4 or (rate == 2 and number == 0) else GOOD

    first = search(3, judge, "search.tolerance=0.5")
    raw = tmp_path / "results" / "raw" / "max_goodput"
    before = {path: path.read_bytes() for path in (tmp_path / "results" / "tables").iterdir()}
    folders = sorted(path.name for path in raw.iterdir())
    assert first == (0, [2, 2, 4, 4, 2.828])
    assert search(3, lambda *_: GOOD, "search.tolerance=0.5") == (0, [])
    assert {path: path.read_bytes() for path in (tmp_path / "results" / "tables").iterdir()} == before
    assert sorted(path.name for path in raw.iterdir()) == folders
    assert sum(".try" in name for name in folders) == 2
    assert search(3, lambda *_: GOOD, "search.tolerance=1", redo=True) == (0, [2, 4])
    assert not [path for path in raw.iterdir() if ".try" in path.name]
    assert not (tmp_path / "results" / "tables" / "max_goodput_not_valid.csv").exists()


def test_a_search_killed_between_two_tries_goes_on(search: Callable[..., Any], tmp_path: Path) -> None:
    """The first try was put aside, the second was never written."""
    search(3, lambda rate, _: BOUND if rate == 2 else GOOD, "search.tolerance=1")
    raw = tmp_path / "results" / "raw" / "max_goodput"
    (first,) = raw.glob("*.try1")
    again = first.with_name(first.name.removesuffix(".try1"))
    again.rename(tmp_path / "gone")
    assert search(3, lambda *_: GOOD, "search.tolerance=1") == (0, [2, 4])
    assert [row["rate_scale"] for row in rows(tmp_path, "_not_valid")] == ["2"]
    assert point_state(again).value == "finished"


@pytest.mark.parametrize(("setting", "least"), [("tolerance=0.001", "0.005"), ("step=1.001", "1.005")])
def test_steps_finer_than_the_digits_of_a_rate_are_refused(
    search: Callable[..., Any], setting: str, least: str
) -> None:
    with pytest.raises(SettingsError, match=rf"search\.\w+ must be at least {least}"):
        search(3, lambda *_: GOOD, f"search.{setting}")
