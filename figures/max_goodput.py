"""Max goodput of every system, workloads side by side; bounds are arrows, never numbers."""

import math
from collections.abc import Hashable, Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.attainment_rows import in_drawing_order
from figures.conditions import CONDITION, condition_labels, footnote
from figures.max_goodput_rows import max_goodput_rows
from figures.page import finish, mark_simulated, new_figure, requests_per_second_axis, theme
from figures.results import Inputs, MissingInputError
from figures.style import ordered, styles_of

TITLE = "Max goodput: the highest rate at which 90 % of requests meet their TTFT SLO"
HEADLINE = "goodput_vs_rate"
OTHER_WORKLOADS = ("azure_code", "mooncake")
"""Drawn beside the headline experiment where they were run."""


def rows(inputs: Inputs) -> pd.DataFrame:
    """One row per workload and series. Raises MissingInputError when the experiment's own table is missing."""
    frames = [max_goodput_rows(inputs.results, inputs.experiment).assign(experiment=inputs.experiment)]
    for experiment in OTHER_WORKLOADS if inputs.experiment == HEADLINE else ():
        try:
            frames.append(max_goodput_rows(inputs.results, experiment).assign(experiment=experiment))
        except MissingInputError:  # a workload that was not run has no panel
            continue
    place = {frame["experiment"].iloc[0]: i for i, frame in enumerate(frames)}
    found = pd.concat(frames, ignore_index=True)
    found["panel"] = found["experiment"].map(place)
    return in_drawing_order(found, ["panel", *CONDITION])


def draw(rows: pd.DataFrame) -> Figure:
    """One panel per condition; a bar per series, the longer the better."""
    rows = rows.assign(label=condition_labels(rows, ignore=("slo_speed_factor",)))
    groups = sorted(rows.groupby(["panel", *CONDITION], sort=True), key=lambda item: item[0])
    names = ordered(rows["series"])
    with theme():
        figure = new_figure(3.6 + 3.0 * len(groups), 1.7 + 0.34 * len(names) + 0.5)
        grid = figure.subplots(1, len(groups), squeeze=False, sharey=True)[0]
        for axes, (_, group) in zip(grid, groups, strict=True):
            _draw_bars(axes, group, names)
            axes.set_title(str(group["label"].iloc[0]), pad=8)
            mark_simulated(axes, sorted(set(group["source"])))
        grid[0].set_yticks(range(len(names)), names)
        grid[0].set_ylim(len(names) - 0.4, -0.6)
        several = rows["max_goodput_low_rate_scale"].notna().any()
        note = "Lines: 95\u00a0% interval from resampling seeds." if several else "One seed: no interval."
        references = sorted(set(rows.loc[rows["ratio"].notna(), "reference"]))
        if references:
            note += f" In brackets: ratio to {' or '.join(references)}, seeds paired."
        if (rows["bound"] != "").any():
            note += " Arrows: a bound, the curve does not cross 90\u00a0% within the rates tried."
        finish(figure, TITLE, footnote(rows, note.strip()))
    return figure


def _draw_bars(axes: Axes, rows: pd.DataFrame, names: list[str]) -> None:
    styles = styles_of(names)
    numbers = rows["max_goodput_rate_scale"]
    ends = rows["max_goodput_high_rate_scale"].replace(math.inf, math.nan)
    reach = 1.62 * float(max(numbers.max(), ends.max() if ends.notna().any() else 0.0))
    step = 0.06 * reach
    for row in rows.to_dict("records"):
        y, value, bound = names.index(row["series"]), float(row["max_goodput_rate_scale"]), row["bound"]
        style = styles[row["series"]]
        axes.barh(
            y, value, height=0.66, color=style.colour if not bound else "white", hatch=style.hatch, zorder=2,
            edgecolor="white" if not bound else style.colour, linewidth=0.8,
        )  # fmt: skip
        low, high = float(row["max_goodput_low_rate_scale"]), float(row["max_goodput_high_rate_scale"])
        end = value
        if bound:
            direction = 1 if bound == "above_highest" else -1
            axes.annotate(
                "", (value + direction * step, y), (value, y), zorder=5,
                arrowprops={"arrowstyle": "-|>", "color": "#222222", "shrinkA": 0, "shrinkB": 0, "linewidth": 1.2},
            )  # fmt: skip
            end = value + max(0, direction) * step
        elif not math.isnan(low):
            shown_high = value + step if math.isinf(high) else high
            axes.hlines(y, low, shown_high, color="#222222", linewidth=1.2, zorder=4)
            ticks = [low] if math.isinf(high) else [low, high]
            axes.plot(ticks, [y] * len(ticks), marker="|", color="#222222", markersize=6, linestyle="none", zorder=4)
            if math.isinf(high):
                axes.plot([shown_high], [y], marker=">", color="#222222", markersize=4, linestyle="none", zorder=4)
            end = shown_high
        axes.annotate(
            _label(row), (end, y), xytext=(4, 0), textcoords="offset points", va="center", fontsize=7, zorder=6
        )
    axes.set_xlim(0, reach)
    axes.set_xlabel("rate scale (1 = the trace's own rate)")
    axes.grid(visible=False, axis="y")
    requests_per_second_axis(axes, float((rows["max_goodput_rps"] / numbers).mean()))


def _label(row: Mapping[Hashable, Any]) -> str:
    """ "2.41", "≥ 4" or "< 0.5"; with the ratio to the reference behind it where there is one."""
    sign = {"above_highest": "≥ ", "below_lowest": "< "}.get(str(row["bound"]), "")
    text = f"{sign}{row['max_goodput_rate_scale']:.3g}"
    ratio = float(row["ratio"])
    if math.isnan(ratio):
        return text
    ratio_sign = {"at_least": "≥ ", "at_most": "≤ "}.get(str(row["ratio_bound"]), "")
    return f"{text}  ({ratio_sign}{ratio:.2g}×)"
