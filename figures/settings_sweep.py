"""Max goodput and attainment over the value of a setting: ablations, and errors of the TTFT prediction."""

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from figures.attainment_rows import ALL, NEEDED, attainment_rows
from figures.clairvoyant_bound import ATTAINABLE, LIMIT, draw_level, draw_limit, handles_of, with_attainable, with_limit
from figures.conditions import CONDITION, condition_labels, footnote
from figures.curves import TARGET
from figures.max_goodput_rows import max_goodput_rows
from figures.page import finish, mark_simulated, new_figure, theme
from figures.results import Inputs, MissingInputError
from figures.series_settings import setting_in
from figures.style import SeriesStyle, as_written, styles_of
from figures.telling_rate import telling_rate

TITLE = "Max goodput and attainment, one setting of batching changed at a time"
ERROR = "error"
ERROR_TITLE = "What wrong TTFT predictions cost: max goodput and attainment"
OTHER = "other settings"
PERCENT = 100.0
AXES = {ERROR: "error of the TTFT predictions (coefficient of variation)"}
ENDS = ("", "_low", "_high")
AS_IT_COMES: Mapping[str, Any] = {"color": "#222222", "linewidth": 1.1, "linestyle": (0.0, (5.0, 2.0))}
METRICS = {"goodput": "max goodput, rate scale", "attainment": "TTFT SLO met, %"}


def rows(inputs: Inputs) -> pd.DataFrame:
    """One row per series: its setting, value and base, its max goodput, and its attainment at one rate.

    A series whose name holds no setting has an empty one; the rate is the highest at which the plainest of those
    (else the first series there is) still attains 90 %. Raises MissingInputError.
    """
    table = inputs.results.table(inputs.experiment, NEEDED)
    goodput = max_goodput_rows(inputs.results, inputs.experiment)
    plain = sorted({s for s in table["series"] if setting_in(s) is None}, key=lambda name: (len(name), name))
    known = [one for one in [*_references(goodput), *plain, *sorted(table["series"])] if one in set(table["series"])]
    rate = telling_rate(table, known[0])
    points = attainment_rows(table, "rate_scale", inputs.experiment)
    points = points[(points["panel"] == ALL) & (points["rate_scale"] == rate)]
    kept = [*CONDITION, "series", "attainment", "attainment_low", "attainment_high", "requests", "invalid_seeds"]
    found = goodput.merge(points[kept], how="left", on=[*CONDITION, "series"])
    if found.empty:
        raise MissingInputError(f"the table of {inputs.experiment} has no series with a max goodput")
    settings = [setting_in(series) for series in found["series"]]
    found = found.assign(
        rate_scale=rate,
        base=[s.base if s else "" for s in settings],
        setting=[s.name if s else "" for s in settings],
        value=[s.value if s else math.nan for s in settings],
        goodput=found["max_goodput_rate_scale"],
        goodput_low=found["max_goodput_low_rate_scale"],
        goodput_high=found["max_goodput_high_rate_scale"],
    )
    found = with_attainable(with_limit(found, inputs.results, inputs.experiment), table)
    return found.sort_values([*CONDITION, "setting", "base", "value", "series"], kind="stable").reset_index(drop=True)


def draw(rows: pd.DataFrame) -> Figure:
    """A column per setting; above the max goodput, below the attainment at one rate. Several conditions: one each."""
    labels = condition_labels(rows)
    columns = [
        (label, setting)
        for label in dict.fromkeys(labels)
        for setting in [*dict.fromkeys(rows.loc[(labels == label) & (rows["setting"] != ""), "setting"]), OTHER]
        if setting != OTHER or len(_unset(rows, labels, label)) > 1
    ]
    styles = _styles(rows)
    with theme():
        figure = new_figure(max(6.4, 1.0 + 2.9 * len(columns)), 6.2)
        grid = figure.subplots(len(METRICS), len(columns), squeeze=False, sharey="row", sharex="col")
        for j, (label, setting) in enumerate(columns):
            unset = _unset(rows, labels, label)
            here = unset if setting == OTHER else rows[(labels == label) & (rows["setting"] == setting)]
            level = unset.iloc[:1] if setting != OTHER else unset.iloc[:0]
            for i, metric in enumerate(METRICS):
                axes = grid[i][j]
                if setting == OTHER:
                    _draw_bars(axes, here, metric, styles)
                else:
                    _draw_lines(axes, here, level, metric, styles)
                    axes.set_xlabel(AXES.get(setting, setting) if i == len(METRICS) - 1 else "")
                if metric == "goodput":
                    draw_limit(axes, here)
                else:
                    draw_level(axes, PERCENT * float(here[ATTAINABLE].iloc[0]))
                mark_simulated(axes, sorted(set(here["source"])))
                axes.set_ylabel(METRICS[metric] if j == 0 else "")
            several = len(set(labels)) > 1
            name = setting if len(set(rows["setting"]) - {""}) > 1 else ""
            grid[0][j].set_title(": ".join(part for part in (label if several else "", name) if part))
        note = f"Below: at rate scale {rows['rate_scale'].iloc[0]:g}. Bars: 95\u00a0% interval from resampling seeds."
        if (rows["bound"] != "").any():
            note += " Hollow: the curve does not cross 90\u00a0% within the rates tried."
        title = ERROR_TITLE if set(rows["setting"]) - {""} == {ERROR} else TITLE
        finish(figure, title, footnote(rows, note), [*_handles(rows, styles), *handles_of(rows, LIMIT)])
    return figure


def _draw_lines(
    axes: Axes, rows: pd.DataFrame, level: pd.DataFrame, metric: str, styles: Mapping[str, SeriesStyle]
) -> None:
    factor = PERCENT if metric == "attainment" else 1.0
    for value in factor * level[metric]:
        axes.axhline(value, **AS_IT_COMES, zorder=1.5)
    for base, line in rows.groupby("base", sort=False):
        style = styles[str(base)]
        axes.plot(line["value"], factor * line[metric], color=style.colour, linestyle=style.line, linewidth=1.4)
        low, high = (factor * line[f"{metric}{end}"].replace(math.inf, math.nan) for end in ENDS[1:])
        axes.vlines(line["value"], low, high, color=style.colour, linewidth=1.1, alpha=0.8)
        hollow = (line["bound"] != "") if metric == "goodput" else (line["invalid_seeds"] > 0)
        for is_hollow, part in line.groupby(hollow):
            axes.plot(
                part["value"], factor * part[metric], marker=style.marker, linestyle="none", markersize=6, zorder=4,
                color=style.colour, markerfacecolor="white" if is_hollow else style.colour,
            )  # fmt: skip
    if rows["value"].min() > 0 and rows["value"].max() >= 10 * rows["value"].min():
        axes.set_xscale("log")
        axes.set_xticks(sorted(set(rows["value"])), [f"{value:g}" for value in sorted(set(rows["value"]))])
        axes.minorticks_off()
    _frame(axes, metric)


def _draw_bars(axes: Axes, rows: pd.DataFrame, metric: str, styles: Mapping[str, SeriesStyle]) -> None:
    factor = PERCENT if metric == "attainment" else 1.0
    colour = next(iter(styles.values())).colour
    axes.bar(range(len(rows)), factor * rows[metric], width=0.6, color=colour, alpha=0.8, zorder=2)
    low, high = (factor * rows[f"{metric}{end}"].replace(math.inf, math.nan) for end in ENDS[1:])
    axes.vlines(range(len(rows)), low, high, color="#222222", linewidth=1.1, zorder=4)
    axes.set_xticks(range(len(rows)), [_broken(as_written(name)) for name in rows["series"]], rotation=0)
    axes.grid(visible=False, axis="x")
    _frame(axes, metric)


def _frame(axes: Axes, metric: str) -> None:
    axes.set_ylim(bottom=0)
    if metric == "attainment":
        axes.set_ylim(0, 103)
        axes.axhline(PERCENT * TARGET, color="#444444", linewidth=0.8, linestyle=(0, (1, 1)), zorder=1)


def _unset(rows: pd.DataFrame, labels: "pd.Series[str]", label: str) -> pd.DataFrame:
    """Series named after no setting, the reference first."""
    found = rows[(labels == label) & (rows["setting"] == "")]
    references = _references(rows)
    return found.assign(second=~found["series"].isin(references)).sort_values(["second", "series"], kind="stable")


def _references(rows: pd.DataFrame) -> list[str]:
    """The series that ratios are to, if the table has any."""
    return sorted({str(name) for name in rows["reference"].dropna()} - {""})


def _styles(rows: pd.DataFrame) -> dict[str, SeriesStyle]:
    bases = sorted(set(rows.loc[rows["setting"] != "", "base"]))
    plain = {"": SeriesStyle("#0072B2", "o"), "FlowPrefill": SeriesStyle("#0072B2", "o")}
    known = styles_of(name for name in bases if name not in plain)
    return {name: plain.get(name) or known[name] for name in bases or [""]}


def _handles(rows: pd.DataFrame, styles: Mapping[str, SeriesStyle]) -> list[Line2D]:
    handles = [
        Line2D([], [], color=style.colour, linestyle=style.line, marker=style.marker, label=base)
        for base, style in styles.items()
        if base
    ]
    references = [name for name in _references(rows) if setting_in(name) is None]
    if references and "" in styles:
        label = f"{references[0]}, as it comes"
        handles.append(Line2D([], [], **AS_IT_COMES, label=label))
    return handles


def _broken(name: str) -> str:
    """A long name on two lines."""
    words = name.split(" ")
    half = -(-len(words) // 2)
    return "\n".join(" ".join(part) for part in (words[:half], words[half:]) if part)
