"""Max goodput of every system, workloads side by side; bounds are arrows, never numbers."""

import math
from collections.abc import Hashable, Mapping
from types import MappingProxyType
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.attainment_rows import in_drawing_order
from figures.clairvoyant_bound import LIMIT, draw_limit, handles_of, with_limit
from figures.conditions import CONDITION, condition_labels, footnote, with_conditions
from figures.max_goodput_rows import SIGNS, max_goodput_rows
from figures.page import HALO, finish, mark_simulated, new_figure, requests_per_second_axis, theme
from figures.results import DamagedTableError, Inputs, MissingInputError
from figures.style import as_written, ordered, styles_of

TITLE = "Max goodput: the highest rate at which 90 % of requests meet their TTFT SLO"
BESIDE: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"goodput_vs_rate": ("azure_code", "mooncake"), "sim_goodput_vs_rate": ("sim_release",)}
)
"""Experiments drawn beside another where they were run."""
NOT_VALID, RATE = "not_valid", "max_goodput_rate_scale"


def rows(inputs: Inputs) -> pd.DataFrame:
    """One row per workload and series, and one (bound: not_valid) per rate at which a series has a measurement that is
    not VALID. Raises MissingInputError when the experiment's own table is missing."""
    frames = [max_goodput_rows(inputs.results, inputs.experiment).assign(experiment=inputs.experiment)]
    for experiment in BESIDE.get(inputs.experiment, ()):
        try:
            frames.append(max_goodput_rows(inputs.results, experiment).assign(experiment=experiment))
        except DamagedTableError:
            raise
        except MissingInputError:  # a workload that was not run has no panel
            continue
    place = {frame["experiment"].iloc[0]: i for i, frame in enumerate(frames)}
    found = pd.concat(frames, ignore_index=True)
    found["panel"] = found["experiment"].map(place)
    limited = [with_limit(rows, inputs.results, str(name)) for name, rows in found.groupby("experiment", sort=False)]
    found = pd.concat([*limited, *_not_valid(found, inputs)], ignore_index=True)
    return in_drawing_order(found, ["panel", *CONDITION])


def _not_valid(rows: pd.DataFrame, inputs: Inputs) -> list[pd.DataFrame]:
    """Rates that count in no bar, of the panels and series that have one."""
    keys = ["experiment", "series", *CONDITION]
    found = []
    for experiment in dict.fromkeys(rows["experiment"]):
        if inputs.results.has(f"{experiment}_not_valid"):
            table = with_conditions(inputs.results.table(f"{experiment}_not_valid", ("series", "rate_scale")))
            rates = table[[*keys, "rate_scale"]].drop_duplicates().rename(columns={"rate_scale": RATE})
            found.append(rates.merge(rows[[*keys, "panel"]]).assign(bound=NOT_VALID, ratio_bound=""))
    return [frame for frame in found if len(frame)]


def draw(rows: pd.DataFrame) -> Figure:
    """One panel per condition; a bar per series, the longer the better."""
    rows = rows.assign(label=condition_labels(rows, ignore=("slo_speed_factor",)))
    apart = rows["bound"] == NOT_VALID
    rows, not_valid = rows[~apart], rows[apart]
    groups = sorted(rows.groupby(["panel", *CONDITION], sort=True), key=lambda item: item[0])
    names = ordered(rows["series"])
    with theme():
        figure = new_figure(3.6 + 3.0 * len(groups), 1.7 + 0.34 * len(names) + 0.5)
        grid = figure.subplots(1, len(groups), squeeze=False, sharey=True)[0]
        for axes, (_, group) in zip(grid, groups, strict=True):
            marks = not_valid[not_valid["panel"] == group["panel"].iloc[0]]
            _draw_bars(axes, group, names, marks[marks["label"] == group["label"].iloc[0]])
            axes.set_title(str(group["label"].iloc[0]), pad=8)
            mark_simulated(axes, sorted(set(group["source"])), above=True)
        grid[0].set_yticks(range(len(names)), [as_written(name) for name in names])
        grid[0].set_ylim(len(names) - 0.4, -0.6)
        several = rows["max_goodput_low_rate_scale"].notna().any()
        note = "Lines: 95\u00a0% interval from resampling seeds." if several else "One seed: no interval."
        references = sorted(set(rows.loc[rows["ratio"].notna(), "reference"]))
        if references:
            note += f" In brackets: ratio to {' or '.join(references)}, seeds paired."
        if references and set(rows["source"]) == {"simulated"} and set(rows["protocol"]) == {"paper"}:
            note += " Arrivals of two minutes, compressed; the figure protocols has the steady state beside them."
        if (rows["bound"] != "").any():
            note += " Arrows: a bound, the curve does not cross 90\u00a0% within the rates tried."
        if len(not_valid):
            note += " Hollow circles: rates whose measurement is not VALID, in no bar."
        finish(figure, TITLE, footnote(rows, note.strip()), handles_of(rows, LIMIT))
    return figure


def _draw_bars(axes: Axes, rows: pd.DataFrame, names: list[str], not_valid: pd.DataFrame) -> None:
    styles = styles_of(names)
    numbers = rows["max_goodput_rate_scale"]
    ends = rows["max_goodput_high_rate_scale"].replace(math.inf, math.nan)
    reach = 1.62 * float(max(numbers.max(), ends.max() if ends.notna().any() else 0.0))
    reach = max(reach, 1.06 * draw_limit(axes, rows, vertical=True))
    if len(not_valid):
        reach = max(reach, 1.06 * float(not_valid[RATE].max()))
    for mark in not_valid.to_dict("records"):
        axes.plot(
            mark[RATE], names.index(mark["series"]), marker="o", markersize=5, markerfacecolor="white",
            markeredgecolor=styles[mark["series"]].colour, linestyle="none", zorder=5,
        )  # fmt: skip
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
            _label(row), (end, y), xytext=(4, 0), textcoords="offset points", va="center", fontsize=7, zorder=6,
            path_effects=HALO,
        )  # fmt: skip
    axes.set_xlim(0, reach)
    axes.set_xlabel("rate scale (1 = the trace's own rate)")
    axes.grid(visible=False, axis="y")
    requests_per_second_axis(axes, float((rows["max_goodput_rps"] / numbers).mean()))


def _label(row: Mapping[Hashable, Any]) -> str:
    """ "2.41", "≥ 4" or "< 0.5"; with the ratio to the reference behind it where there is one."""
    text = f"{SIGNS.get(str(row['bound']), '')}{row['max_goodput_rate_scale']:.3g}"
    ratio = float(row["ratio"])
    if math.isnan(ratio):
        return text
    return f"{text}  ({SIGNS.get(str(row['ratio_bound']), '')}{ratio:.2g}×)"
