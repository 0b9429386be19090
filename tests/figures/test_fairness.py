"""The figure of slowdowns: means over seeds, one rate, and what has none."""

from pathlib import Path

import pandas as pd
import pytest

from engine.core.record import Status
from figures import fairness
from figures.figure_files import rows_as_written
from figures.results import Inputs, MissingInputError, Results
from harness.experiments.fairness_table import COLUMNS
from harness.measurement.table_file import write_table
from harness.measurement.tables import write_points
from tests.figures import synthetic_results as made


def write(root: Path, slowdowns: dict[tuple[str, int], float | None], rate: float = 2.0, served: int = 10) -> Inputs:
    """One point per series and seed, with these slowdowns and an index of a tenth of them."""
    points, shares = [], []
    for (series, seed), slowdown in slowdowns.items():
        facts = made.at(made.FACTS, series=series, seed=seed, rate_scale=rate, point=f"{series}-{seed}")
        points.append(
            {
                **{name: getattr(facts, name) for name in facts.__dataclass_fields__},
                "requests_due": 10, f"requests_{Status.OK.value}": served, "verdict": "VALID",
            }
        )  # fmt: skip
        for panel in ("all", "text"):
            shares.append(
                {
                    "point": facts.point, "series": series, "rate_scale": rate, "seed": seed, "class": panel, "n": 10,
                    "served": served, "slowdown_mean": slowdown, "slowdown_p99": slowdown and 3 * slowdown,
                    "jain": slowdown and slowdown / 10,
                }
            )  # fmt: skip
    write_points(root / "tables" / "x.csv", points)
    write_table(root / "tables" / "x_fairness.csv", shares, COLUMNS)
    return Inputs(Results(root), "x")


def test_means_over_seeds_by_series_and_class(tmp_path: Path) -> None:
    inputs = write(tmp_path, {("DistServe (FCFS)", 0): 4.0, ("FlowPrefill (operator)", 0): 2.0,
                              ("FlowPrefill (operator)", 1): 4.0})  # fmt: skip
    found = fairness.rows(inputs)
    assert list(found["series"]) == ["FlowPrefill (operator)"] * 2 + ["DistServe (FCFS)"] * 2
    ours = found[(found["series"] == "FlowPrefill (operator)") & (found["panel"] == "all")].iloc[0]
    named = ["slowdown_mean", "slowdown_low", "slowdown_high", "slowdown_p99", "jain", "requests", "seeds"]
    assert ours[named].tolist() == pytest.approx([3.0, 2.0, 4.0, 9.0, 0.3, 20, 2])


def test_what_was_never_served_is_told_beside_the_mark(tmp_path: Path) -> None:
    rows = rows_as_written(fairness.rows(write(tmp_path, {("a", 0): 2.0}, served=8)))
    figure = fairness.draw(rows)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["all requests", "text", "Jain's index, all"]
    assert [text.get_text() for text in figure.axes[0].texts] == ["80 %"]
    assert figure.axes[0].get_xlim() == figure.axes[1].get_xlim()


def test_points_without_a_profile_are_left_out(tmp_path: Path) -> None:
    inputs = write(tmp_path, {("a", 0): 2.0, ("b", 0): None})
    assert set(fairness.rows(inputs)["series"]) == {"a"}
    inputs = write(tmp_path, {("b", 0): None})
    with pytest.raises(MissingInputError, match="no point of x at rate_scale 2 has slowdowns"):
        fairness.rows(inputs)


def test_the_rate_is_the_one_asked_for(tmp_path: Path) -> None:
    inputs = write(tmp_path, {("a", 0): 2.0})
    with pytest.raises(MissingInputError, match="rate_scale 5"):
        fairness.rows(Inputs(inputs.results, "x", rate_scale=5.0))
    assert pd.unique(fairness.rows(inputs)["rate_scale"]).tolist() == [2.0]
