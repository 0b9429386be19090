"""The clairvoyant bound beside the systems: no schedule, however well informed, attains more."""

import math
from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from figures.attainment_rows import attainment_rows
from figures.conditions import CONDITION, with_conditions
from figures.curves import TARGET
from figures.max_goodput_rows import SIGNS
from figures.results import Results
from figures.style import SOLID, LineStyle
from harness.measurement.goodput import RatePoint, max_goodput

SERIES = "Clairvoyant bound"
COLUMN = "bound_attainment"
LIMIT, OPEN, ATTAINABLE = "clairvoyant_rate_scale", "clairvoyant_open", "clairvoyant_attainment"
COLOUR = "#8c8c8c"
WIDTH = 3.0


def bound_rows(table: pd.DataFrame, axis: str, experiment: str, by: tuple[str, ...] = ()) -> pd.DataFrame:
    """Rows as `attainment_rows` makes them, kind "bound", of all requests; empty where the table has no bound."""
    points = _bounds(table, axis, by)
    if points.empty:
        return points
    points = points.assign(series=SERIES, attainment=points[COLUMN], verdict="VALID")
    return attainment_rows(points, axis, experiment, by).assign(kind="bound")


def with_limit(rows: pd.DataFrame, results: Results, experiment: str, by: tuple[str, ...] = ()) -> pd.DataFrame:
    """The rows with clairvoyant_rate_scale, where the mean bound of their condition crosses 90 %, and clairvoyant_open,
    the name of the open end where it does not ("above_highest" or "below_lowest"). Both empty where none was solved.

    by: further columns that set bounds apart.
    """
    found = bound_max_goodput(results.table(experiment), by) if results.has(experiment) else pd.DataFrame()
    if found.empty:
        return rows.assign(clairvoyant_rate_scale=math.nan, clairvoyant_open="")
    joined = rows.merge(found, how="left", on=[*CONDITION, *by])
    return joined.assign(**{OPEN: joined[OPEN].fillna("")})


def with_attainable(rows: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """The rows with clairvoyant_attainment, the mean bound of their condition at their rate_scale; or empty."""
    points = _bounds(table, "rate_scale", ())
    if points.empty:
        return rows.assign(**{ATTAINABLE: math.nan})
    keys = [*CONDITION, "rate_scale"]
    means = points.groupby(keys)[COLUMN].mean().rename(ATTAINABLE).reset_index()
    return rows.merge(means, how="left", on=keys)


def bound_max_goodput(table: pd.DataFrame, by: tuple[str, ...] = ()) -> pd.DataFrame:
    """The columns of `with_limit`, one row per condition and values of `by`; empty where the table has no bound."""
    points, keys_of = _bounds(table, "rate_scale", by), [*CONDITION, *by]
    found = []
    for keys, group in points.groupby(keys_of, sort=True) if len(points) else ():
        tried = [RatePoint(int(s), float(r), float(b)) for s, r, b in group[["seed", "rate_scale", COLUMN]].to_numpy()]
        limit, _ = max_goodput(tried, TARGET)
        found.append({**dict(zip(keys_of, keys, strict=True)), LIMIT: limit.known, OPEN: limit.bound})
    return pd.DataFrame(found)


def draw_bound(axes: Axes, rows: pd.DataFrame, x: str, style: LineStyle = SOLID) -> None:
    """A broad grey line behind the series."""
    line = rows.sort_values(x)
    axes.plot(line[x], 100 * line["attainment"], color=COLOUR, linewidth=WIDTH, linestyle=style, alpha=0.55, zorder=1.5)


def draw_limit(axes: Axes, rows: pd.DataFrame, *, vertical: bool = False, style: LineStyle = SOLID) -> float:
    """The max goodput no schedule exceeds, across the panel, which makes room; returns it, 0 where there is none.

    rows: as `with_limit` makes them, of one condition. vertical: rates go to the right.
    """
    there = rows[rows[LIMIT].notna()]
    if there.empty:
        return 0.0
    limit = float(there[LIMIT].iloc[0])
    draw_level(axes, limit, vertical=vertical, style=style)
    axes.annotate(
        f"{SIGNS.get(str(there[OPEN].iloc[0]), '')}{limit:.3g}",
        (limit, 0) if vertical else (0, limit),
        xycoords=("data", "axes fraction") if vertical else ("axes fraction", "data"),
        xytext=(-4, 1) if vertical else (3, 3),
        textcoords="offset points",
        ha="right" if vertical else "left",
        va="bottom",
        fontsize=7,
        color="#555555",
        zorder=6,
    )
    if vertical:
        axes.set_xlim(right=max(axes.get_xlim()[1], 1.06 * limit))
    else:
        axes.set_ylim(top=max(axes.get_ylim()[1], 1.12 * limit))
    return limit


def draw_level(axes: Axes, level: float, *, vertical: bool = False, style: LineStyle = SOLID) -> None:
    """A broad grey line across the panel; none of a value that is not there."""
    if not math.isnan(level):
        line = axes.axvline if vertical else axes.axhline
        line(level, color=COLOUR, linewidth=WIDTH, linestyle=style, alpha=0.55, zorder=1.5)


def handles_of(rows: pd.DataFrame, column: str) -> list[Line2D]:
    """The legend entry, where a row of `column` has a bound."""
    return [bound_handle()] if column in rows and rows[column].notna().any() else []


def bound_handle() -> Line2D:
    """Its legend entry."""
    return Line2D([], [], color=COLOUR, linewidth=WIDTH, alpha=0.55, label=SERIES.lower())


def _bounds(table: pd.DataFrame, axis: str, by: Sequence[str]) -> pd.DataFrame:
    """One row per condition, axis value and seed. It is solved once and shared by all series; of several values (a
    series with fewer batches has a lower one) the greatest bounds them all."""
    if COLUMN not in table.columns:
        return pd.DataFrame()
    there = with_conditions(table[table[COLUMN].notna()])
    keys = [*CONDITION, *by, axis, "seed"]
    chosen = there.loc[there.groupby(keys)[COLUMN].idxmax()] if len(there) else there
    classes = [name for name in chosen.columns if name.startswith(("n_", "attainment_")) and name != "attainment_n"]
    return chosen.drop(columns=classes)
