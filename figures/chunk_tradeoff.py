"""What the size of a chunk buys and costs, with prefill that can stop at every operator beside it."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator

from figures.chunk_rows import CHUNKED, METRICS, chunk_rows
from figures.clairvoyant_bound import LIMIT, draw_limit, handles_of
from figures.conditions import condition_labels, footnote
from figures.page import finish, mark_simulated, new_figure, theme
from figures.results import Inputs
from figures.style import SeriesStyle, styles_of

TITLE = "The size of a chunk: throughput against response"
PERCENT = 100.0
ORDERS = {
    "s_edf": SeriesStyle("#009E73", "^"),
    "edf": SeriesStyle("#E69F00", "P", (0.0, (6.0, 1.5, 1.2, 1.5))),
    "fcfs": SeriesStyle("#CC79A7", "p", (0.0, (5.0, 2.0))),
}


def rows(inputs: Inputs) -> pd.DataFrame:
    """One row per series and metric: see `chunk_rows`. Raises MissingInputError."""
    return chunk_rows(inputs.results, inputs.experiment)


def draw(rows: pd.DataFrame) -> Figure:
    """A row of panels per condition, a panel per metric: lines over the chunk size, level lines for those without."""
    labels = condition_labels(rows)
    bands = list(dict.fromkeys(labels))
    metrics = [name for name in METRICS if name in set(rows["metric"])]
    policies = sorted(set(rows.loc[rows["kind"] == CHUNKED, "policy"]), reverse=True)
    orders = {name: ORDERS.get(name) or styles_of([name])[name] for name in policies}
    levels = styles_of(rows.loc[rows["kind"] != CHUNKED, "series"])
    with theme():
        figure = new_figure(max(6.4, 0.8 + 3.3 * len(metrics)), 1.7 + 2.9 * len(bands))
        grid = figure.subplots(len(bands), len(metrics), squeeze=False)
        for i, band in enumerate(bands):
            for j, metric in enumerate(metrics):
                axes, here = grid[i][j], rows[(labels == band) & (rows["metric"] == metric)]
                _draw_panel(axes, here, orders, levels)
                if metric == "max_goodput":
                    draw_limit(axes, here)
                axes.set_title(_title(here, band if len(bands) > 1 and j == 0 else ""))
                axes.set_ylabel(METRICS[metric])
                mark_simulated(axes, sorted(set(here["source"])))
        note = "Level lines have no chunks. Bars: 95\u00a0% interval over seeds."
        if (rows["bound"] != "").any():
            note += " Hollow: the curve does not cross 90\u00a0% within the rates tried."
        finish(figure, TITLE, footnote(rows, note), [*_handles(orders, levels), *handles_of(rows, LIMIT)], 5)
    return figure


def _draw_panel(
    axes: Axes, rows: pd.DataFrame, orders: Mapping[str, SeriesStyle], levels: Mapping[str, SeriesStyle]
) -> None:
    percent = str(rows["metric"].iloc[0]).startswith("attainment")
    factor = PERCENT if percent else 1.0
    for name, style in levels.items():
        for value in factor * rows.loc[rows["series"] == name, "value"]:
            axes.axhline(value, color=style.colour, linestyle=style.line, linewidth=2.0, alpha=0.75, zorder=1.5)
    for name, style in orders.items():
        line = rows[(rows["kind"] == CHUNKED) & (rows["policy"] == name)].sort_values("chunk_tokens")
        axes.plot(line["chunk_tokens"], factor * line["value"], color=style.colour, linestyle=style.line, linewidth=1.3)
        axes.vlines(
            line["chunk_tokens"], factor * line["low"], factor * line["high"], color=style.colour, linewidth=1.1,
            alpha=0.8,
        )  # fmt: skip
        for hollow, part in line.groupby(line["bound"] != ""):
            axes.plot(
                part["chunk_tokens"], factor * part["value"], marker=style.marker, linestyle="none", markersize=6,
                color=style.colour, markerfacecolor="white" if hollow else style.colour, zorder=4,
            )  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(sorted(set(rows.loc[rows["kind"] == CHUNKED, "chunk_tokens"]))))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda size, _: f"{size / 1024:g}K" if size >= 1024 else f"{size:g}")
    axes.set_xlabel("chunk size, tokens")
    axes.set_ylim(bottom=0, top=103 if percent else None)


def _title(rows: pd.DataFrame, band: str) -> str:
    rate = rows["rate_scale"].iloc[0]
    parts = [band] if band else []
    return ", ".join(parts + ([] if pd.isna(rate) else [f"at rate scale {rate:g}"]))


def _handles(orders: Mapping[str, SeriesStyle], levels: Mapping[str, SeriesStyle]) -> list[Line2D]:
    chunked = [
        Line2D([], [], color=style.colour, linestyle=style.line, marker=style.marker, label=f"chunked, {name} order")
        for name, style in orders.items()
    ]
    return chunked + [
        Line2D([], [], color=style.colour, linestyle=style.line, linewidth=2.0, alpha=0.75, label=name)
        for name, style in levels.items()
    ]
