"""Curves of attainment in one panel: a line per series, intervals, the 90 % line, hollow marks for invalid points."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from figures.style import SeriesStyle

TARGET = 0.9
SIDE_SPREAD = 0.3
"""Where all stand at one x, series are drawn side by side over this share of x: else they would hide each other."""


def draw_curves(axes: Axes, rows: pd.DataFrame, x: str, styles: Mapping[str, SeriesStyle]) -> None:
    """Draw rows with columns series, x, attainment, attainment_low, attainment_high, invalid_seeds (shares in 0..1)."""
    axes.axhline(100 * TARGET, color="#444444", linewidth=0.8, linestyle=(0, (1, 1)), zorder=1)
    for place, (name, style) in enumerate(styles.items()):
        line = rows[rows["series"] == name].sort_values(x)
        if line.empty:
            continue
        if rows[x].nunique() == 1:
            line = line.assign(**{x: line[x] * (1 + SIDE_SPREAD * ((place + 0.5) / len(styles) - 0.5))})
        axes.plot(line[x], 100 * line["attainment"], color=style.colour, linestyle=style.line, linewidth=1.3, zorder=3)
        axes.vlines(
            line[x], 100 * line["attainment_low"], 100 * line["attainment_high"],
            color=style.colour, linewidth=1.0, alpha=0.7, zorder=2,
        )  # fmt: skip
        for hollow, part in line.groupby(line["invalid_seeds"] > 0):
            axes.scatter(
                part[x], 100 * part["attainment"], marker=style.marker, s=size_of(style), zorder=4,
                linewidths=1.0 if hollow else 0.4,
                edgecolors=style.colour if hollow else "white", facecolors="white" if hollow else style.colour,
            )  # fmt: skip
    axes.set_ylim(-3, 103)
    axes.set_yticks(range(0, 101, 20))


def size_of(style: SeriesStyle) -> float:
    """Area of a mark in points squared: thin shapes are drawn larger, so that all look alike in weight."""
    return 58.0 if style.marker == "*" else 42.0 if style.marker in "PXdp<>" else 32.0


def legend_handles(styles: Mapping[str, SeriesStyle], target: bool = True) -> list[Line2D]:
    """One legend entry per series, and one for the 90 % line where it is drawn."""
    handles = [
        Line2D(
            [], [], color=style.colour, linestyle=style.line, marker=style.marker, linewidth=1.3,
            markersize=size_of(style) ** 0.5, markeredgecolor="white", markeredgewidth=0.4, label=name,
        )
        for name, style in styles.items()
    ]  # fmt: skip
    if target:
        label = f"{100 * TARGET:g} % of requests"
        handles.append(Line2D([], [], color="#444444", linewidth=0.8, linestyle=(0, (1, 1)), label=label))
    return handles
