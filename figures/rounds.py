"""When the scheduler decides: how often that is, what it costs, and what it does to attainment."""

from collections.abc import Hashable, Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.attainment_rows import ALL, attainment_rows
from figures.clairvoyant_bound import LIMIT, OPEN, bound_handle, bound_rows, draw_bound, draw_limit, with_limit
from figures.conditions import condition_labels, footnote, interval_note, with_conditions
from figures.curves import draw_curves, legend_handles
from figures.max_goodput_rows import max_goodput_rows
from figures.page import finish, mark_simulated, new_figure, theme
from figures.results import Inputs, MissingInputError
from figures.style import SeriesStyle, styles_of
from figures.telling_rate import telling_rate

TITLE = "When is decided: on events, at every poll, or before every operator"
NEEDED = (
    "series", "seed", "rate_scale", "rate_rps", "attainment", "attainment_n", "verdict", "point", "decisions",
    "other_decisions", "scheduling_us_per_decision", "requests_due",
)  # fmt: skip
ON_EVENTS = "on events"
"""The series all others are held against."""

LOOKS = {
    ON_EVENTS: SeriesStyle("#0072B2", "o"),
    "polling every 1 ms": SeriesStyle("#009E73", "^", (0.0, (5.0, 2.0)), "//"),
    "polling every 5 ms": SeriesStyle("#E69F00", "s", (0.0, (6.0, 1.5, 1.2, 1.5)), ".."),
    "polling every 10 ms": SeriesStyle("#D55E00", "D", (0.0, (1.2, 1.4)), "xx"),
    "before every operator": SeriesStyle("#882255", "v", (0.0, (4.0, 1.2, 1.2, 1.2, 1.2, 1.2)), "\\\\"),
}
BARS = {
    "rounds_per_request": "scheduling rounds per request",
    "control_ms_per_request": "control-plane time per request, ms",
    "max_goodput_rate_scale": "max goodput, rate scale",
}


def rows(inputs: Inputs) -> pd.DataFrame:
    """Kind "point" and "bound": attainment over the rate. Kind "cost": rounds and control-plane time per request at
    the rate that events still carry, and max goodput where there is one. Raises MissingInputError."""
    table = inputs.results.table(inputs.experiment, NEEDED)
    if ON_EVENTS not in set(table["series"]):
        raise MissingInputError(f"the table of {inputs.experiment} has no series {ON_EVENTS!r}")
    points = attainment_rows(table, "rate_scale", inputs.experiment).assign(kind="point")
    points = points[points["panel"] == ALL]
    shown = [points, _costs(table, inputs), bound_rows(table, "rate_scale", inputs.experiment)]
    return pd.concat([part for part in shown if len(part)], ignore_index=True)


def _costs(table: pd.DataFrame, inputs: Inputs) -> pd.DataFrame:
    rate = telling_rate(table, ON_EVENTS)
    here = with_conditions(table[table["rate_scale"] == rate])
    rounds = here["decisions"].fillna(0) + here["other_decisions"].fillna(0)
    spent_ms = rounds * here["scheduling_us_per_decision"].fillna(0) / 1000
    here = here.assign(
        rounds_per_request=rounds / here["requests_due"], control_ms_per_request=spent_ms / here["requests_due"]
    )
    facts = ["source", "model", "device", "slo_speed_factor", "workload", "protocol"]
    costs = here.groupby(["series", *facts], sort=False)[["rounds_per_request", "control_ms_per_request"]].mean()
    costs = costs.reset_index().assign(kind="cost", rate_scale=rate)
    try:
        goodput = max_goodput_rows(inputs.results, inputs.experiment)
    except MissingInputError:  # without a crossing the other costs stand
        return costs
    ends = ["max_goodput_rate_scale", "max_goodput_low_rate_scale", "max_goodput_high_rate_scale", "bound"]
    found = with_limit(goodput, inputs.results, inputs.experiment)
    ends += [LIMIT, OPEN]
    return costs.merge(found[["series", *facts, *ends]], how="left", on=["series", *facts])


def draw(rows: pd.DataFrame) -> Figure:
    """Bars of rounds, time and max goodput; beside them attainment over the rate. One row per condition."""
    labels = condition_labels(rows, ignore=("length_scale", "slo_scale"))
    bands = list(dict.fromkeys(labels))
    points = rows[rows["kind"] == "point"]
    names = [name for name in LOOKS if name in set(points["series"])]
    names += [name for name in styles_of(points["series"]) if name not in LOOKS]
    styles = {name: LOOKS.get(name) or styles_of([name])[name] for name in names}
    bars = [name for name in BARS if name in rows]
    with theme():
        figure = new_figure(11.5, 1.6 + 3.0 * len(bands))
        grid = figure.subplots(len(bands), len(bars) + 1, squeeze=False, width_ratios=[1] * len(bars) + [1.7])
        for i, band in enumerate(bands):
            here = rows[labels == band]
            costs = here[here["kind"] == "cost"].set_index("series")
            sources = sorted(set(here["source"]))
            for j, name in enumerate(bars):
                _draw_bars(grid[i][j], costs, name, styles)
                mark_simulated(grid[i][j], sources, above=True)
            _draw_attainment(grid[i][-1], here, styles)
            grid[i][0].set_title(band if len(bands) > 1 else "", loc="left")
            mark_simulated(grid[i][-1], sources)
        rate = rows.loc[rows["kind"] == "cost", "rate_scale"].iloc[0]
        note = f"Rounds and time at rate scale {rate:g}. {interval_note(points)}"
        bound = [bound_handle()] if (rows["kind"] == "bound").any() else []
        finish(figure, TITLE, footnote(points, note), [*legend_handles(styles), *bound], 4)
    return figure


def _draw_bars(axes: Axes, costs: pd.DataFrame, column: str, styles: Mapping[str, SeriesStyle]) -> None:
    cells: dict[str, dict[Hashable, Any]] = {str(name): row for name, row in costs.to_dict("index").items()}
    there = [name for name in styles if name in cells and pd.notna(cells[name][column])]
    values = [float(cells[name][column]) for name in there]
    for place, (name, value) in enumerate(zip(there, values, strict=True)):
        style = styles[name]
        axes.bar(place, value, width=0.7, color=style.colour, hatch=style.hatch, edgecolor="white", zorder=2)
        end = value
        if column.startswith("max_goodput") and not cells[name]["bound"]:
            low, high = (float(cells[name][f"max_goodput_{side}_rate_scale"]) for side in ("low", "high"))
            axes.vlines(place, low, min(high, 1.1 * max(values)), color="#222222", linewidth=1.0, zorder=4)
            end = max(value, min(high, 1.1 * max(values)))
        axes.annotate(f"{value:.3g}", (place, end), xytext=(0, 3), textcoords="offset points", ha="center", fontsize=7)
    positive = [value for value in values if value > 0]
    if positive and max(positive) > 20 * min(positive):
        axes.set_yscale("log")
        axes.set_ylim(0.5 * min(positive), 2.5 * max(positive))
        axes.yaxis.set_major_formatter("{x:g}")
    else:
        axes.set_ylim(0, 1.18 * max([*values, 1e-9]))
    if column.startswith("max_goodput"):
        draw_limit(axes, costs)
    axes.set_xticks([])
    axes.set_ylabel(BARS[column])


def _draw_attainment(axes: Axes, rows: pd.DataFrame, styles: Mapping[str, SeriesStyle]) -> None:
    bound = rows[rows["kind"] == "bound"]
    if len(bound):
        draw_bound(axes, bound, "rate_scale")
    draw_curves(axes, rows[rows["kind"] == "point"], "rate_scale", styles)
    axes.set_xlabel("rate scale (1 = the trace's own rate)")
    axes.set_ylabel("TTFT SLO met, %")
