"""The bound beside the systems: where it is drawn, at which value."""

from pathlib import Path

import pandas as pd
import pytest
from matplotlib.figure import Figure

from figures.catalogue import DRAWINGS
from figures.clairvoyant_bound import (
    ATTAINABLE,
    LIMIT,
    OPEN,
    bound_max_goodput,
    draw_limit,
    with_attainable,
    with_limit,
)
from figures.conditions import CONDITION
from figures.results import Inputs, Results

RESULTS = Path(__file__).parents[2] / "results"
HERE = {**dict.fromkeys(CONDITION, "x"), "slo_scale": 1.0, "length_scale": 1.0, "slo_speed_factor": 1.0}
NO_GOODPUT = ("sim_blocking", "sim_predictor_fit")


def table(**bounds: list[float]) -> pd.DataFrame:
    """Per ranks, the bound at rate scales 1, 2, 3; of two series, one with smaller batches and a lower bound."""
    return pd.DataFrame(
        [
            {
                **HERE, "series": series, "ranks": int(ranks[2:]), "rate_scale": float(rate), "seed": seed,
                "bound_attainment": most - less,
            }
            for ranks, shares in bounds.items()
            for rate, most in enumerate(shares, 1)
            for seed in (0, 1)
            for series, less in (("A", 0.0), ("B", 0.05))
        ]
    )  # fmt: skip


def test_the_limit_is_where_the_mean_of_the_greatest_bounds_crosses_90_percent() -> None:
    made = table(tp1=[1.0, 0.95, 0.85], tp2=[1.0, 1.0, 0.96])
    found = bound_max_goodput(made, ("ranks",)).set_index("ranks")
    assert found.loc[1, [LIMIT, OPEN]].tolist() == [pytest.approx(2.5), ""]
    assert found.loc[2, [LIMIT, OPEN]].tolist() == [3.0, "above_highest"]
    assert bound_max_goodput(made.drop(columns="bound_attainment")).empty


def test_rows_get_the_limit_and_the_attainable_of_their_own_condition(tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    made = table(tp1=[1.0, 0.95, 0.85])
    made.to_csv(tmp_path / "tables" / "e.csv", index=False)
    rows = pd.DataFrame([{**HERE, "rate_scale": 2.0}, {**HERE, "workload": "other", "rate_scale": 2.0}])
    limited = with_limit(rows, Results(tmp_path), "e")
    assert limited[LIMIT].tolist() == [pytest.approx(2.5), pytest.approx(float("nan"), nan_ok=True)]
    assert limited[OPEN].tolist() == ["", ""]
    assert with_attainable(rows, made)[ATTAINABLE].tolist() == [
        pytest.approx(0.95),
        pytest.approx(float("nan"), nan_ok=True),
    ]
    assert with_limit(rows, Results(tmp_path), "none")[LIMIT].isna().all()


@pytest.mark.parametrize(("vertical", "end"), [(True, 4.24), (False, 4.48)])
@pytest.mark.parametrize(("open_end", "said"), [("above_highest", "≥ 4"), ("below_lowest", "< 4"), ("", "4")])
def test_the_line_has_its_number_and_room(open_end: str, said: str, vertical: bool, end: float) -> None:
    axes = Figure().subplots()
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    rows = pd.DataFrame({LIMIT: [None, 4.0], OPEN: ["", open_end]})
    assert draw_limit(axes, rows[:1], vertical=vertical) == 0.0
    assert (len(axes.lines), axes.get_xlim(), axes.get_ylim()) == (0, (0, 1), (0, 1))
    assert draw_limit(axes, rows, vertical=vertical) == 4.0
    assert [text.get_text() for text in axes.texts] == [said]
    (line,) = axes.lines
    assert list(line.get_xdata() if vertical else line.get_ydata()) == [4.0, 4.0]
    assert (axes.get_xlim() if vertical else axes.get_ylim()) == (0, pytest.approx(end))


@pytest.mark.parametrize(
    "name", sorted(n for n, d in DRAWINGS.items() if str(d.experiment).startswith("sim_") and n not in NO_GOODPUT)
)
def test_every_simulated_goodput_figure_has_the_bound(name: str) -> None:
    rows = DRAWINGS[name].rows_from(Inputs(Results(RESULTS), str(DRAWINGS[name].experiment)))
    kinds = set(rows.get("kind", ()))
    assert "bound" in kinds or any(column in rows and rows[column].notna().any() for column in (LIMIT, ATTAINABLE))
