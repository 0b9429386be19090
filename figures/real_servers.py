"""Our engine beside real vLLM and SGLang servers: at shares of each one's own capacity, and at the same rates."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from figures.attainment_rows import ALL
from figures.conditions import footnote, in_class_order, interval_note
from figures.curves import draw_curves, legend_handles, size_of
from figures.page import finish, mark_simulated, new_figure, theme
from figures.real_servers_rows import DIFFERENCE, NORMALISED, RAW, SERVER, SHARE, UNLOADED
from figures.style import SeriesStyle, styles_of

TITLE = "Real servers on one machine, one checkpoint, one trace"
PERCENT = 100.0
SPREAD = 0.7
"""Series of one rate stand side by side over this much of the way to the next."""


def draw(rows: pd.DataFrame) -> Figure:
    """Above: attainment over shares of own capacity, all requests and classes. Below: over requests per second with
    common SLOs; paired differences; unloaded TTFT."""
    kinds = {kind: rows[rows["kind"] == kind] for kind in (NORMALISED, RAW, DIFFERENCE, UNLOADED, SERVER)}
    normalised = kinds[NORMALISED]
    styles = styles_of(normalised["series"])
    classes = in_class_order(set(normalised["panel"]) - {ALL})
    columns = max(1, -(-len(classes) // 2))
    with theme():
        figure = new_figure(12.0, 9.4)
        bands = figure.add_gridspec(2, 1, height_ratios=(1.15, 1.0))
        above = bands[0].subgridspec(1, 2 + columns)
        _shares(figure.add_subplot(above[0, :2]), normalised[normalised["panel"] == ALL], styles, "all requests")
        grid = above[0, 2:].subgridspec(2, columns)
        for i, name in enumerate(classes):
            axes = figure.add_subplot(grid[i % 2, i // 2])
            here = normalised[normalised["panel"] == name]
            _shares(axes, here, styles, f"{name} (n = {int(here['requests'].max())})", large=False)
            last = i % 2 == 1 or i == len(classes) - 1
            axes.set_xlabel("share of own capacity" if last else "")
        below = bands[1].subgridspec(1, 3)
        _rates(figure.add_subplot(below[0, 0]), kinds[RAW], styles)
        _differences(figure.add_subplot(below[0, 1]), kinds[DIFFERENCE], styles)
        _unloaded(figure.add_subplot(below[0, 2]), kinds[UNLOADED], styles)
        named = {_label(name, normalised, kinds[SERVER]): style for name, style in styles.items()}
        finish(figure, TITLE, footnote(normalised, _note(normalised, kinds[SERVER])), legend_handles(named), 3)
    return figure


def _shares(axes: Axes, rows: pd.DataFrame, styles: Mapping[str, SeriesStyle], title: str, large: bool = True) -> None:
    draw_curves(axes, rows, SHARE, styles)
    shares = sorted(set(rows[SHARE]))
    margin = 0.15 * (shares[-1] - shares[0]) if len(shares) > 1 else 0.25 * shares[0]
    axes.set_xlim(shares[0] - margin, shares[-1] + margin)
    axes.set_xticks(shares, [f"{share:g}" for share in shares])
    axes.set_title(f"{title}, SLOs by each server's own speed" if large else title)
    if large:
        axes.set_xlabel("requests per second, as a share of the server's own capacity")
        axes.set_ylabel("requests that met their TTFT SLO, %")
    mark_simulated(axes, sorted(set(rows["source"])))


def _rates(axes: Axes, rows: pd.DataFrame, styles: Mapping[str, SeriesStyle]) -> None:
    axes.set_title("the same runs, one set of SLOs for all")
    if _nothing(axes, rows):
        return
    shown = rows[rows["panel"] == ALL]
    draw_curves(axes, shown, "rate_rps", styles)
    axes.set_xlim(0, 1.08 * float(shown["rate_rps"].max()))
    axes.set_xlabel("requests per second")
    axes.set_ylabel("requests that met their TTFT SLO, %")
    mark_simulated(axes, sorted(set(shown["source"])))


def _differences(axes: Axes, rows: pd.DataFrame, styles: Mapping[str, SeriesStyle]) -> None:
    shown = rows[rows["panel"] == ALL] if len(rows) else rows
    reference = str(shown["reference"].iloc[0]) if len(shown) else "the reference"
    axes.set_title(f"{reference} less the other, paired")
    if _nothing(axes, shown):
        return
    shares = sorted(set(shown[SHARE]))
    names = [name for name in styles if name in set(shown["series"])]
    axes.axhline(0, color="#444444", linewidth=0.9, zorder=1)
    for i, name in enumerate(names):
        line = shown[shown["series"] == name]
        x = line[SHARE].map(shares.index) + SPREAD * ((i + 0.5) / len(names) - 0.5)
        style = styles[name]
        low, high = PERCENT * line["difference_low"], PERCENT * line["difference_high"]
        axes.vlines(x, low, high, color=style.colour, linewidth=1.4, zorder=2)
        axes.scatter(
            x, PERCENT * line["difference"], marker=style.marker, s=size_of(style), color=style.colour,
            edgecolors="white", linewidths=0.4, zorder=3,
        )  # fmt: skip
    axes.set_xticks(range(len(shares)), [f"{share:g}" for share in shares])
    axes.set_xlim(-0.5, len(shares) - 0.5)
    axes.grid(visible=False, axis="x")
    axes.set_xlabel("share of own capacity")
    axes.set_ylabel("difference of attainment, percentage points")


def _unloaded(axes: Axes, rows: pd.DataFrame, styles: Mapping[str, SeriesStyle]) -> None:
    axes.set_title("TTFT of a lone prompt")
    if _nothing(axes, rows):
        return
    for name, style in styles.items():
        line = rows[rows["series"] == name].sort_values("prompt_tokens")
        axes.plot(
            line["prompt_tokens"], 1e3 * line["ttft_s"], color=style.colour, linestyle=style.line, marker=style.marker,
            markersize=size_of(style) ** 0.5, markeredgecolor="white", markeredgewidth=0.4, linewidth=1.3, zorder=3,
        )  # fmt: skip
        axes.vlines(
            line["prompt_tokens"], 1e3 * line["ttft_low_s"], 1e3 * line["ttft_high_s"], color=style.colour, zorder=2
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    lengths = sorted(set(rows["prompt_tokens"]))
    axes.set_xticks(lengths, [f"{tokens:g}" for tokens in lengths])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("prompt tokens, as sent")
    axes.set_ylabel("TTFT, ms")


def _nothing(axes: Axes, rows: pd.DataFrame) -> bool:
    """Say so in a panel without rows."""
    if len(rows):
        return False
    axes.text(0.5, 0.5, "not measured", transform=axes.transAxes, ha="center", va="center", color="#777777")
    axes.set_xticks([])
    axes.set_yticks([])
    return True


def label_of(series: str, points: pd.DataFrame) -> str:
    """The series with the chunk size it was measured at, where it has one."""
    chunk = points.loc[points["series"] == series, "chunk_tokens"].iloc[0]
    return series if pd.isna(chunk) else f"{series}, chunk {chunk:g}"


def _label(series: str, points: pd.DataFrame, servers: pd.DataFrame) -> str:
    label = label_of(series, points)
    if servers.empty:
        return label
    own = servers[(servers["series"] == series) & servers["chosen"].astype(str).eq("True")]
    return f"{label} (1 = {own['capacity_rps'].iloc[0]:.3g}/s)" if len(own) else label


def _note(points: pd.DataFrame, servers: pd.DataFrame) -> str:
    """What a reader must know of the panels, and which servers are missing and why."""
    words = [
        interval_note(points),
        "Capacity (in brackets): requests per second that a server completes of a backlog.",
        "Chunk sizes in trace tokens, the better of those tried in a pilot, whose points are not shown.",
    ]
    if len(servers):
        absent = servers[servers["not_run"].astype(str) != ""]
        words += [f"{one['series']}: {one['not_run']}." for _, one in absent.drop_duplicates("series").iterrows()]
    return " ".join(words)
