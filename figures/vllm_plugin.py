"""The plugin beside stock vLLM: attainment, what order and granularity give, blocking, and what the hooks cost."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.attainment_rows import ALL
from figures.conditions import footnote, interval_note
from figures.curves import draw_curves, legend_handles
from figures.page import finish, mark_simulated, new_figure, theme
from figures.style import SeriesStyle, styles_of
from figures.vllm_plugin_rows import ATTAINMENT, BLOCKING, KEPT, SHARE, STEP, STEPS

TITLE = "FlowPrefill as a plugin of an unmodified vLLM, on one CPU core"
LEAST_KEPT = 0.98
STEP_LOOKS = (("#009E73", "s"), ("#E69F00", "D"), ("#56B4E9", "v"), ("#0072B2", "o"))
SPREAD = 0.6


def draw(rows: pd.DataFrame) -> Figure:
    """Above: attainment over shares of own capacity, and the gain of each addition. Below: blocking and throughput."""
    attainment = rows[rows["kind"] == ATTAINMENT]
    styles = styles_of(attainment["series"])
    with theme():
        figure = new_figure(10.0, 7.6)
        grid = figure.subplots(2, 2, height_ratios=(1.25, 1.0))
        _attainment(grid[0][0], attainment[attainment["panel"] == ALL], styles)
        _steps(grid[0][1], rows[rows["kind"] == STEP])
        _blocking(grid[1][0], rows[rows["kind"] == BLOCKING])
        _kept(grid[1][1], rows[rows["kind"] == KEPT])
        note = f"{interval_note(attainment)} Above: {_steps_note(attainment)} Below: bench.vllm_plugin."
        finish(figure, TITLE, footnote(attainment, note), legend_handles(styles), columns=3)
    return figure


def _attainment(axes: Axes, rows: pd.DataFrame, styles: Mapping[str, SeriesStyle]) -> None:
    draw_curves(axes, rows, SHARE, styles)
    _share_ticks(axes, sorted(set(rows[SHARE])))
    axes.set_title("SLOs by each server's own speed")
    axes.set_xlabel("requests per second, share of the server's own capacity")
    axes.set_ylabel("requests that met their TTFT SLO, %")
    mark_simulated(axes, sorted(set(rows["source"])))


def _share_ticks(axes: Axes, shares: list[float]) -> None:
    margin = 0.15 * (shares[-1] - shares[0]) if len(shares) > 1 else 0.25 * shares[0]
    axes.set_xlim(shares[0] - margin, shares[-1] + margin)
    axes.set_xticks(shares, [f"{share:g}" for share in shares])


def _steps(axes: Axes, rows: pd.DataFrame) -> None:
    axes.set_title("gained by order (two left) and by granularity (two right)")
    if _nothing(axes, rows):
        return
    shares = sorted(set(rows[SHARE]))
    axes.axhline(0, color="#444444", linewidth=0.9, zorder=1)
    for i, ((name, _, _), (colour, marker)) in enumerate(zip(STEPS, STEP_LOOKS, strict=True)):
        line = rows[rows["series"] == name]
        x = line[SHARE].map(shares.index) + SPREAD * ((i + 0.5) / len(STEPS) - 0.5)
        axes.vlines(x, 100 * line["gain_low"], 100 * line["gain_high"], color=colour, linewidth=1.4, zorder=2)
        axes.scatter(x, 100 * line["gain"], marker=marker, s=34, color=colour, zorder=3, label=name)
    axes.set_xticks(range(len(shares)), [f"{share:g}" for share in shares])
    axes.set_xlim(-0.5, len(shares) - 0.5)
    axes.grid(visible=False, axis="x")
    axes.set_xlabel("share of own capacity")
    axes.set_ylabel("difference of attainment, percentage points")
    axes.legend(loc="best", fontsize=7)


def _blocking(axes: Axes, rows: pd.DataFrame) -> None:
    axes.set_title("mean blocking of arrivals at random instants")
    if _nothing(axes, rows):
        return
    places = range(len(rows))
    axes.bar(places, 1e3 * rows["value"], width=0.6, color="#0072B2", alpha=0.75, zorder=2)
    axes.vlines(places, 1e3 * rows["low"], 1e3 * rows["high"], color="#222222", linewidth=1.4, zorder=4)
    _numbers(axes, rows, 1e3)
    axes.set_xticks(places, [str(name).replace("_", " ") for name in rows["setting"]])
    axes.set_ylabel(f"blocking by a {rows['tokens'].iloc[0]:g}-token prompt, ms")
    axes.set_ylim(0, 1.18e3 * float(rows["high"].max()))


def _kept(axes: Axes, rows: pd.DataFrame) -> None:
    axes.set_title("throughput with hooks, nobody to preempt")
    if _nothing(axes, rows):
        return
    places = range(len(rows))
    axes.vlines(places, 100 * rows["low"], 100 * rows["high"], color="#009E73", linewidth=1.6, zorder=2)
    axes.scatter(places, 100 * rows["value"], marker="o", s=40, color="#009E73", zorder=3)
    _numbers(axes, rows, 100)
    axes.axhline(100, color="#444444", linewidth=0.8, zorder=1)
    axes.axhline(100 * LEAST_KEPT, color="#D55E00", linewidth=0.9, linestyle=(0, (4, 2)), zorder=1)
    axes.set_xticks(places, [str(name).replace(" ", "\n") for name in rows["setting"]])
    axes.set_xlim(-0.5, len(rows) - 0.5)
    axes.set_ylabel("% of stock order in the same processes")
    axes.set_ylim(min(96.0, 99.5 * float(rows["low"].min())), max(103.0, 101 * float(rows["high"].max())))


def _numbers(axes: Axes, rows: pd.DataFrame, scale: float) -> None:
    for place, (value, high) in enumerate(zip(rows["value"], rows["high"], strict=True)):
        axes.annotate(
            f"{scale * value:.1f}", (place, scale * high), xytext=(0, 3), textcoords="offset points", ha="center",
            fontsize=8,
        )  # fmt: skip
    axes.grid(visible=False, axis="x")


def _nothing(axes: Axes, rows: pd.DataFrame) -> bool:
    """Say so in a panel without rows."""
    if len(rows):
        return False
    axes.text(0.5, 0.5, "not measured", transform=axes.transAxes, ha="center", va="center", color="#777777")
    axes.set_xticks([])
    axes.set_yticks([])
    return True


def _steps_note(rows: pd.DataFrame) -> str:
    shown = rows[rows["panel"] == ALL]
    return (
        f"{int(shown['requests'].min())} to {int(shown['requests'].max())} requests behind each mark, paired by seed."
    )
