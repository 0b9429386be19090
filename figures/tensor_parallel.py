"""One model over several accelerators: attainment over the rate, and what each accelerator adds to max goodput."""

import math
import re
from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from figures.attainment_rows import ALL, NEEDED, attainment_rows
from figures.clairvoyant_bound import (
    COLOUR,
    LIMIT,
    OPEN,
    WIDTH,
    bound_max_goodput,
    bound_rows,
    draw_bound,
    handles_of,
)
from figures.conditions import condition_labels, footnote, interval_note
from figures.curves import draw_curves
from figures.max_goodput_rows import max_goodput_rows
from figures.page import finish, mark_simulated, new_figure, theme
from figures.results import Inputs, MissingInputError
from figures.style import DASHED, DOTTED, SOLID, LineStyle, SeriesStyle, styles_of

TITLE = "Tensor parallelism: one model over several accelerators"
RANKS = re.compile(r"(?P<base>.+), TP(?P<ranks>\d+)")
LINES: tuple[LineStyle, ...] = (DOTTED, DASHED, SOLID)
BY = ("base", "ranks")
GOODPUT = ("max_goodput_rate_scale", "max_goodput_low_rate_scale", "max_goodput_high_rate_scale")


def rows(inputs: Inputs) -> pd.DataFrame:
    """Kind "point": attainment of all requests over the rate. Kind "goodput": max goodput, by base and ranks, which the
    series is named after ("DistServe (FCFS), TP2"). Kinds "bound" and "limit": the same of the clairvoyant bound, by
    ranks. Raises MissingInputError."""
    table = _by_ranks(inputs.results.table(inputs.experiment, NEEDED), inputs.experiment)
    points = attainment_rows(table, "rate_scale", inputs.experiment, BY)
    points = points[points["panel"] == ALL].assign(kind="point")
    goodput = _by_ranks(max_goodput_rows(inputs.results, inputs.experiment), inputs.experiment).assign(kind="goodput")
    limits = bound_max_goodput(table, ("ranks",))
    parts = [
        points,
        goodput,
        bound_rows(table, "rate_scale", inputs.experiment, ("ranks",)),
        limits.assign(kind="limit"),
    ]
    return pd.concat([part for part in parts if len(part)], ignore_index=True)


def _by_ranks(found: pd.DataFrame, experiment: str) -> pd.DataFrame:
    """Of the series named after them, with columns base and ranks."""
    named = [RANKS.fullmatch(series) for series in found["series"].astype(str)]
    chosen = found[[one is not None for one in named]]
    if chosen.empty:
        raise MissingInputError(f"the table of {experiment} has no series named after its ranks (', TP2')")
    return chosen.assign(base=[one["base"] for one in named if one], ranks=[int(one["ranks"]) for one in named if one])


def draw(rows: pd.DataFrame) -> Figure:
    """A row per model: attainment, max goodput over the accelerators, and the same per accelerator."""
    labels = condition_labels(rows)
    bands, ranks = list(dict.fromkeys(labels)), sorted(set(rows["ranks"]))
    bases = styles_of(rows.loc[rows["kind"] == "goodput", "base"])
    line_of = {count: LINES[i % len(LINES)] for i, count in enumerate(ranks)}
    with theme():
        figure = new_figure(10.6, 1.6 + 2.9 * len(bands))
        grid = figure.subplots(len(bands), 3, squeeze=False)
        for i, band in enumerate(bands):
            here = rows[labels == band]
            points, goodput = here[here["kind"] == "point"], here[here["kind"] == "goodput"]
            curves, total, each = grid[i]
            draw_curves(curves, points, "rate_scale", _curve_styles(points, bases, line_of))
            curves.set_xscale("log")
            curves.set_xlabel("rate scale")
            curves.set_ylabel("TTFT SLO met, %")
            curves.set_title(f"{band}: attainment" if len(bands) > 1 else "attainment")
            for count, limit in here[here["kind"] == "bound"].groupby("ranks"):
                draw_bound(curves, limit, "rate_scale", line_of[count])
            for axes, per_accelerator in ((total, False), (each, True)):
                _draw_goodput(axes, goodput, bases, per_accelerator)
                _draw_limits(axes, here[here["kind"] == "limit"], per_accelerator)
            for axes in grid[i]:
                mark_simulated(axes, sorted(set(points["source"])))
        points = rows[rows["kind"] == "point"]
        note = f"{interval_note(points)} SLOs and rates are the same for every number of accelerators."
        if ((rows["bound"].fillna("") != "") | (rows[OPEN].fillna("") != "" if OPEN in rows else False)).any():
            note += " Hollow: the curve does not cross 90\u00a0% within the rates tried."
        finish(figure, TITLE, footnote(points, note), [*_handles(bases, line_of), *handles_of(rows, LIMIT)])
    return figure


def _curve_styles(
    rows: pd.DataFrame, bases: Mapping[str, SeriesStyle], line_of: Mapping[int, LineStyle]
) -> dict[str, SeriesStyle]:
    known = rows.drop_duplicates("series").sort_values(["base", "ranks"], kind="stable")
    return {
        str(row["series"]): SeriesStyle(bases[row["base"]].colour, bases[row["base"]].marker, line_of[row["ranks"]])
        for row in known.to_dict("records")
    }


def _draw_goodput(axes: Axes, rows: pd.DataFrame, bases: Mapping[str, SeriesStyle], per_accelerator: bool) -> None:
    for base, line in rows.sort_values("ranks").groupby("base", sort=False):
        style = bases[str(base)]
        value, low, high = (line[name] / (line["ranks"] if per_accelerator else 1) for name in GOODPUT)
        axes.plot(line["ranks"], value, color=style.colour, linestyle=SOLID, linewidth=1.3, zorder=3)
        axes.vlines(line["ranks"], low, high.replace(math.inf, math.nan), color=style.colour, linewidth=1.1, zorder=2)
        for bounded, part in line.groupby(line["bound"] != ""):
            axes.plot(
                part["ranks"], value[part.index], marker=style.marker, linestyle="none", markersize=6, zorder=4,
                color=style.colour, markerfacecolor="white" if bounded else style.colour,
            )  # fmt: skip
    axes.set_xscale("log", base=2)
    ranks = sorted(set(rows["ranks"]))
    axes.set_xticks(ranks, [str(count) for count in ranks])
    axes.minorticks_off()
    axes.set_xlabel("accelerators")
    axes.set_ylabel("max goodput, rate scale")
    axes.set_title("per accelerator" if per_accelerator else "max goodput")
    axes.set_ylim(bottom=0)


def _draw_limits(axes: Axes, rows: pd.DataFrame, per_accelerator: bool) -> None:
    if rows.empty:
        return
    line = rows.sort_values("ranks")
    value = line[LIMIT] / (line["ranks"] if per_accelerator else 1)
    axes.plot(line["ranks"], value, color=COLOUR, linewidth=WIDTH, alpha=0.55, zorder=1.5)
    axes.plot(
        line["ranks"][line[OPEN] != ""], value[line[OPEN] != ""], marker="o", markersize=7, linestyle="none",
        color=COLOUR, markerfacecolor="white", zorder=1.6,
    )  # fmt: skip
    axes.set_ylim(top=max(axes.get_ylim()[1], 1.06 * float(value.max())))


def _handles(bases: Mapping[str, SeriesStyle], line_of: Mapping[int, LineStyle]) -> list[Line2D]:
    systems = [
        Line2D([], [], color=style.colour, marker=style.marker, linestyle="none", label=base)
        for base, style in bases.items()
    ]
    return systems + [
        Line2D([], [], color="#444444", linestyle=line, linewidth=1.3, label=f"TP{count}")
        for count, line in line_of.items()
    ]
