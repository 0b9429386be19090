"""The two protocols side by side: max goodput in the paper's two-minute window and in a steady state."""

import math
from collections.abc import Hashable, Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from figures.clairvoyant_bound import LIMIT, OPEN, SERIES, draw_limit, handles_of, with_limit
from figures.conditions import CONDITION, condition_labels, footnote
from figures.max_goodput_rows import SIGNS, max_goodput_rows
from figures.page import finish, mark_simulated, new_figure, theme
from figures.results import DamagedTableError, Inputs, MissingInputError
from figures.steadiness import steadiness_rows, steadiness_text
from figures.style import DASHED, SOLID, LineStyle, SeriesStyle, as_written, ordered, styles_of

TITLE = "Max goodput by protocol: a two-minute window compressed, and a steady state"
EXPERIMENTS = ("sim_goodput_vs_rate", "sim_steady_state", "sim_release")
"""Where points of either protocol may be; of a series measured twice under one, the first counts."""

PROTOCOLS = {"paper": "paper (2-minute window)", "steady_state": "steady state"}
LIMITS: Mapping[str, LineStyle] = {"paper": SOLID, "steady_state": DASHED}
GOODPUT, STEADINESS = "goodput", "steadiness"
ALIKE = tuple(column for column in CONDITION if column != "protocol")


def rows(inputs: Inputs) -> pd.DataFrame:
    """Kind "goodput": of the series that have both protocols in the same condition. Kind "steadiness": what arrivals
    twice as long change (see `steadiness_rows`). Raises MissingInputError."""
    frames = []
    for experiment in EXPERIMENTS:
        try:
            found = max_goodput_rows(inputs.results, experiment).assign(experiment=experiment)
            frames.append(with_limit(found, inputs.results, experiment))
        except DamagedTableError:
            raise
        except MissingInputError:
            if experiment == inputs.experiment:
                raise
    found = pd.concat(frames, ignore_index=True)
    found = found[found["protocol"].isin(PROTOCOLS)].drop_duplicates([*CONDITION, "series"])
    both = found.groupby([*ALIKE, "series"])["protocol"].transform("nunique") == len(PROTOCOLS)
    if not both.any():
        raise MissingInputError(f"no series of {', '.join(EXPERIMENTS)} has a max goodput under both protocols")
    place = {name: i for i, name in enumerate(ordered(found["series"]))}
    chosen = found[both].assign(place=found.loc[both, "series"].map(place))
    chosen = chosen.sort_values([*ALIKE, "place", "protocol"], kind="stable").drop(columns="place")
    parts = [chosen.assign(kind=GOODPUT), steadiness_rows(inputs.results, found).assign(kind=STEADINESS)]
    return pd.concat([part for part in parts if len(part)], ignore_index=True)


def draw(rows: pd.DataFrame) -> Figure:
    """A panel per condition; per series a filled bar (the paper's protocol) over a hollow one (steady state)."""
    rows = rows[rows["kind"] == GOODPUT]
    labels = condition_labels(rows, ignore=("protocol", "slo_speed_factor"))
    names, panels = ordered(rows["series"]), list(dict.fromkeys(labels))
    styles = styles_of(names)
    with theme():
        figure = new_figure(3.4 + 3.4 * len(panels), 1.7 + 0.5 * len(names))
        grid = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
        for axes, panel in zip(grid, panels, strict=True):
            here = rows[labels == panel]
            _draw_bars(axes, here, names, styles)
            for protocol, style in LIMITS.items():
                draw_limit(axes, here[here["protocol"] == protocol], vertical=True, style=style)
            axes.set_title(panel)
            mark_simulated(axes, sorted(set(here["source"])))
        grid[0].set_yticks(range(len(names)), [as_written(name) for name in names])
        grid[0].set_ylim(len(names) - 0.4, -0.6)
        handles = [
            Patch(facecolor="#777777", edgecolor="#777777", label=PROTOCOLS["paper"]),
            Patch(facecolor="white", edgecolor="#777777", label=PROTOCOLS["steady_state"]),
            *handles_of(rows, LIMIT),
        ]
        note = "Lines: 95\u00a0% interval from resampling seeds. In brackets: ratio to the reference, seeds paired."
        if rows[LIMIT].notna().any():
            note += " The bound of the steady state is dashed."
        finish(figure, TITLE, footnote(rows, note), handles)
    return figure


def text(rows: pd.DataFrame) -> str:
    """The same as Markdown tables."""
    steadiness, rows = rows[rows["kind"] == STEADINESS], rows[rows["kind"] == GOODPUT]
    labels = condition_labels(rows, ignore=("protocol", "slo_speed_factor"))
    lines = [
        f"# {TITLE}",
        "",
        "Max goodput in multiples of the trace's own rate, 95 % interval; in brackets the ratio to the reference.",
        "",
        f"| condition | series | {PROTOCOLS['paper']} | {PROTOCOLS['steady_state']} |",
        "|---|---|---|---|",
    ]
    for (label, series), pair in rows.groupby([labels, "series"], sort=False):
        cells = {str(row["protocol"]): _cell(row) for row in pair.to_dict("records")}
        lines.append(f"| {label} | {series} | {cells['paper']} | {cells['steady_state']} |")
    for label, here in rows[rows[LIMIT].notna()].groupby(labels, sort=False):
        known = {str(row["protocol"]): _limit(row) for row in here.to_dict("records")}
        cells = {name: known.get(name, "not solved") for name in PROTOCOLS}
        lines.append(f"| {label} | {SERIES.lower()} | {cells['paper']} | {cells['steady_state']} |")
    references = sorted(set(rows.loc[rows["ratio"].notna(), "reference"]))
    lines += ["", f"Reference: {', '.join(references) or 'none'}. Source: {', '.join(sorted(set(rows['source'])))}."]
    return "\n".join([*lines, "", *steadiness_text(steadiness)]) + "\n"


def _draw_bars(axes: Axes, rows: pd.DataFrame, names: list[str], styles: Mapping[str, SeriesStyle]) -> None:
    ends = rows["max_goodput_high_rate_scale"].replace(math.inf, math.nan)
    reach = 1.55 * float(max(rows["max_goodput_rate_scale"].max(), ends.max() if ends.notna().any() else 0.0))
    for row in rows.to_dict("records"):
        colour, paper = styles[row["series"]].colour, row["protocol"] == "paper"
        y, value = names.index(row["series"]) + (-0.2 if paper else 0.2), float(row["max_goodput_rate_scale"])
        axes.barh(y, value, height=0.36, color=colour if paper else "white", edgecolor=colour, linewidth=1.0, zorder=2)
        low, high = float(row["max_goodput_low_rate_scale"]), float(row["max_goodput_high_rate_scale"])
        end = value
        if not math.isnan(low) and not row["bound"]:
            end = max(value, value if math.isinf(high) else high)
            axes.hlines(y, low, end, color="#222222", linewidth=1.0, zorder=4)
            axes.plot([low, end], [y, y], marker="|", color="#222222", markersize=5, linestyle="none", zorder=4)
        axes.annotate(
            _short(row), (end, y), xytext=(4, 0), textcoords="offset points", va="center", fontsize=7, zorder=6
        )
    axes.set_xlim(0, reach)
    axes.set_xlabel("rate scale (1 = the trace's own rate)")
    axes.grid(visible=False, axis="y")


def _short(row: Mapping[Hashable, Any]) -> str:
    text = f"{SIGNS.get(str(row['bound']), '')}{row['max_goodput_rate_scale']:.3g}"
    if math.isnan(float(row["ratio"])):
        return text
    return f"{text}  ({SIGNS.get(str(row['ratio_bound']), '')}{row['ratio']:.3g}×)"


def _cell(row: Mapping[Hashable, Any]) -> str:
    value = f"{SIGNS.get(str(row['bound']), '')}{row['max_goodput_rate_scale']:.3g}"
    value += _interval(row["max_goodput_low_rate_scale"], row["max_goodput_high_rate_scale"])
    if math.isnan(float(row["ratio"])):
        return value
    ratio = f"{SIGNS.get(str(row['ratio_bound']), '')}{row['ratio']:.3g}×"
    return f"{value} ({ratio}{_interval(row['ratio_low'], row['ratio_high'])})"


def _limit(row: Mapping[Hashable, Any]) -> str:
    return f"{SIGNS.get(str(row[OPEN]), '')}{row[LIMIT]:.3g}"


def _interval(low: float, high: float) -> str:
    if math.isnan(low):
        return ""
    return f" [{low:.3g}, {'unbounded' if math.isinf(high) else f'{high:.3g}'}]"
