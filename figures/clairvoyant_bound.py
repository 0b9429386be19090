"""The clairvoyant bound beside the systems: no schedule, however well informed, attains more."""

import math
from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from figures.attainment_rows import attainment_rows
from figures.conditions import CONDITION, with_conditions
from figures.curves import TARGET
from harness.measurement.goodput import RatePoint, max_goodput

SERIES = "Clairvoyant bound"
COLUMN = "bound_attainment"
COLOUR = "#8c8c8c"
WIDTH = 3.0
OPEN_SIGNS = {"above_highest": "≥ ", "below_lowest": "< "}


def bound_rows(table: pd.DataFrame, axis: str, experiment: str, by: tuple[str, ...] = ()) -> pd.DataFrame:
    """Rows as `attainment_rows` makes them, kind "bound", of all requests; empty where the table has no bound."""
    points = _bounds(table, axis, by)
    if points.empty:
        return points
    points = points.assign(series=SERIES, attainment=points[COLUMN], verdict="VALID")
    return attainment_rows(points, axis, experiment, by).assign(kind="bound")


def bound_max_goodput(table: pd.DataFrame) -> pd.DataFrame:
    """Per condition: clairvoyant_rate_scale, where the mean bound crosses 90 %, and clairvoyant_open, the name of the
    open end where it does not ("above_highest" or "below_lowest"). Empty where the table has no bound."""
    points = _bounds(table, "rate_scale", ())
    found = []
    for keys, group in points.groupby(list(CONDITION), sort=True) if len(points) else ():
        tried = [RatePoint(int(s), float(r), float(b)) for s, r, b in group[["seed", "rate_scale", COLUMN]].to_numpy()]
        limit, _ = max_goodput(tried, TARGET)
        cells = {"clairvoyant_rate_scale": limit.known, "clairvoyant_open": limit.bound}
        found.append({**dict(zip(CONDITION, keys, strict=True)), **cells})
    return pd.DataFrame(found)


def with_bound_max_goodput(rows: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """The rows with the columns of `bound_max_goodput`, by condition; empty cells where the table has no bound."""
    limits = bound_max_goodput(table)
    if limits.empty:
        return rows.assign(clairvoyant_rate_scale=math.nan, clairvoyant_open="")
    joined = rows.merge(limits, how="left", on=list(CONDITION))
    return joined.assign(clairvoyant_open=joined["clairvoyant_open"].fillna(""))


def draw_bound_level(axes: Axes, rows: pd.DataFrame) -> None:
    """A broad grey line across a finished panel whose height is max goodput, with its number, and room for both.

    None where the rows have no bound.
    """
    known = rows[rows["clairvoyant_rate_scale"].notna()]
    if known.empty:
        return
    limit, open_end = float(known["clairvoyant_rate_scale"].iloc[0]), str(known["clairvoyant_open"].iloc[0])
    axes.set_ylim(top=max(axes.get_ylim()[1], 1.12 * limit))
    axes.axhline(limit, color=COLOUR, linewidth=WIDTH, alpha=0.55, zorder=1.5)
    axes.annotate(
        f"{OPEN_SIGNS.get(open_end, '')}{limit:.3g}", (0.01, limit), xycoords=("axes fraction", "data"), xytext=(0, 5),
        textcoords="offset points", ha="left", va="bottom", fontsize=7.5, color="#555555", zorder=6,
    )  # fmt: skip


def draw_bound(axes: Axes, rows: pd.DataFrame, x: str) -> None:
    """A broad grey line behind the series."""
    line = rows.sort_values(x)
    axes.plot(line[x], 100 * line["attainment"], color=COLOUR, linewidth=WIDTH, alpha=0.55, zorder=1.5)


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
