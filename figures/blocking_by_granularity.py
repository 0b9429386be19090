"""Blocking time and prefill throughput, by granularity and by chunk size."""

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from figures.conditions import footnote
from figures.granularity_rows import APART, RATE, granularity_rows
from figures.page import finish, mark_simulated, new_figure, theme
from figures.results import Inputs

TITLE = "Blocking time and throughput by granularity and chunk size"
MARKS = (
    ("blocking_mean_ms", "mean", "o", "#0072B2", True),
    ("blocking_expected_mean_ms", "mean expected from operator times", "D", "#0072B2", False),
    ("blocking_p50_ms", "median", "_", "#222222", True),
    ("blocking_p99_ms", "p99", "^", "#E69F00", True),
    ("blocking_max_ms", "maximum", "v", "#D55E00", True),
)
"""Column, legend, marker, colour, filled. The predicted mean is the hollow twin of the measured one."""

GRANULARITY_COLOUR, CHUNK_COLOUR = "#0072B2", "#009E73"


def rows(inputs: Inputs) -> pd.DataFrame:
    """One row per setting. Raises MissingInputError."""
    return granularity_rows(inputs.results, inputs.experiment)


def draw(rows: pd.DataFrame) -> Figure:
    """Above, blocking on a log scale; below, throughput relative to no checks. One column per model and device."""
    apart = [name for name in (*APART, RATE) if name in rows]
    groups = list(rows.groupby(apart, sort=False))
    under_load = RATE in rows
    with theme():
        widths = [max(3, len(group)) for _, group in groups]
        figure = new_figure(max(7.0, 1.2 + 0.8 * sum(widths)), 6.2)
        grid = figure.subplots(2, len(groups), squeeze=False, width_ratios=widths, height_ratios=[3, 2])
        for i, (key, group) in enumerate(groups):
            blocking, throughput = grid[0][i], grid[1][i]
            _draw_blocking(blocking, group)
            _draw_throughput(throughput, group)
            blocking.set_title("blocking: pause asked until stopped" if len(groups) == 1 else _named(key))
            throughput.set_title(f"prefill throughput, {'under this load' if under_load else 'nothing preempted'}")
            sources = sorted(set(group["source"]))
            mark_simulated(blocking, sources)
            mark_simulated(throughput, sources, above=True)
        grid[0][0].set_ylabel("blocking time, ms")
        relative = rows["throughput_relative"].notna().any()
        grid[1][0].set_ylabel("% of no checks" if relative else "tokens/s")
        count = rows["blocking_n"][rows["blocking_n"] > 0]
        when = "by the scheduler under load" if under_load else "at random instants"
        asked = f"{int(count.min())} or more pauses per setting, asked {when}." if len(count) else ""
        finish(figure, TITLE, footnote(rows, asked), _handles(rows), columns=3)
    return figure


def _named(key: tuple[object, ...]) -> str:
    """A column's title: model on device, and the rate where there is one."""
    model, device, *rate = key
    return f"{model} on {device}" + "".join(f", rate scale {one:g}" for one in rate)


def _draw_blocking(axes: Axes, rows: pd.DataFrame) -> None:
    places = range(len(rows))
    for column, _, marker, colour, filled in MARKS:
        shift = 0.16 if column == "blocking_expected_mean_ms" else 0.0
        bar = marker == "_"
        axes.plot(
            [place + shift for place in places], rows[column], marker=marker, markersize=9 if bar else 6,
            linestyle="none", color=colour, markerfacecolor=colour if filled else "white",
            markeredgewidth=1.8 if bar else 1.0, zorder=3,
        )  # fmt: skip
    axes.vlines(places, rows["blocking_p50_ms"], rows["blocking_max_ms"], color="#bbbbbb", linewidth=1.0, zorder=1)
    for place, value in zip(places, rows["blocking_mean_ms"], strict=True):
        if pd.notna(value):
            axes.annotate(
                f"{value:.3g}", (place, value), xytext=(-7, 0), textcoords="offset points", ha="right", va="center",
                fontsize=7,
            )  # fmt: skip
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.grid(visible=True, which="minor", axis="y", linewidth=0.3)
    _settings_axis(axes, rows)
    axes.tick_params(labelbottom=False)


def _draw_throughput(axes: Axes, rows: pd.DataFrame) -> None:
    relative = rows["throughput_relative"].notna().any()
    values = 100 * rows["throughput_relative"] if relative else rows["prefill_tokens_per_s"]
    chunked = rows["chunk_tokens"].notna()
    axes.bar(
        range(len(rows)), values, width=0.62, zorder=2, edgecolor="white",
        color=[CHUNK_COLOUR if c else GRANULARITY_COLOUR for c in chunked],
        hatch=["//" if c else "" for c in chunked],
    )  # fmt: skip
    for place, value in enumerate(values):
        if pd.notna(value):
            axes.annotate(
                f"{value:.1f}" if relative else f"{value:.0f}", (place, 0.06 * float(values.max())), ha="center",
                fontsize=7, zorder=4, bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
            )  # fmt: skip
    if relative:
        axes.axhline(100, color="#444444", linewidth=0.8, linestyle=(0, (1, 1)), zorder=3)
    axes.set_ylim(0, 1.08 * float(values.max()))
    _settings_axis(axes, rows)


def _settings_axis(axes: Axes, rows: pd.DataFrame) -> None:
    names = [str(name).replace("_", " ").replace(" ", "\n") for name in rows["setting"]]
    axes.set_xticks(range(len(rows)), names)
    axes.set_xlim(-0.6, len(rows) - 0.4)
    axes.grid(visible=False, axis="x")
    chunked = rows["chunk_tokens"].notna().tolist()
    if True in chunked and False in chunked:
        axes.axvline(chunked.index(True) - 0.5, color="#888888", linewidth=0.8)


def _handles(rows: pd.DataFrame) -> list[Artist]:
    return [
        Line2D(
            [], [], linestyle="none", marker=marker, markersize=9 if marker == "_" else 6, label=label,
            markerfacecolor=colour if filled else "white", markeredgecolor=colour,
            markeredgewidth=1.8 if marker == "_" else 1.0,
        )
        for column, label, marker, colour, filled in MARKS
        if rows[column].notna().any()
    ]  # fmt: skip
