"""A figure's frame: theme, title, shared legend, footnote, and the mark of simulated data."""

import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import matplotlib as mpl
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from numpy.typing import ArrayLike

from figures.style import GRID_COLOUR, NOTE_COLOUR, TEXT_COLOUR, as_written

NOTE_LETTERS_PER_INCH = 17.0
TITLE_LETTERS_PER_INCH = 9.5
HALO = (withStroke(linewidth=2.5, foreground="white"),)
"""Around a number that may cross a line."""


@contextmanager
def theme() -> Iterator[None]:
    """The look of every figure, for as long as the block lasts."""
    import seaborn as sns

    look = {
        **sns.axes_style("whitegrid"),
        **sns.plotting_context("paper", font_scale=1.0),
        "grid.color": GRID_COLOUR,
        "grid.linewidth": 0.6,
        "axes.edgecolor": "#888888",
        "axes.labelcolor": TEXT_COLOUR,
        "text.color": TEXT_COLOUR,
        "font.family": ["sans-serif"],
        "font.sans-serif": ["DejaVu Sans"],
        "axes.titlesize": 9,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.labelsize": 9,
        "xtick.labelsize": 8,
        "ytick.labelsize": 8,
        "legend.fontsize": 8,
        "legend.frameon": False,
        "hatch.linewidth": 0.6,
        "pdf.fonttype": 42,
        "savefig.dpi": 160,
    }
    with mpl.rc_context(look):
        yield


def new_figure(width_in: float, height_in: float) -> Figure:
    """An empty figure, off any screen."""
    figure = Figure(figsize=(width_in, height_in), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def finish(figure: Figure, title: str, note: str, handles: Sequence[Artist] = (), columns: int = 4) -> None:
    """Put the title and legend above the panels and the footnote below them, where they cover no data."""
    for handle in handles:
        handle.set_label(as_written(str(handle.get_label())))
    figure.legend(
        handles=list(handles),
        loc="outside upper left",
        ncols=columns,
        title=_wrapped(title, figure, TITLE_LETTERS_PER_INCH),
        title_fontproperties={"weight": "bold", "size": 11},
        alignment="left",
        handlelength=3.6,
        columnspacing=1.4,
    )
    figure.supxlabel(_wrapped(note, figure, NOTE_LETTERS_PER_INCH), x=0.01, ha="left", fontsize=7, color=NOTE_COLOUR)


def requests_per_second_axis(axes: Axes, per_scale: float) -> None:
    """A second axis above the panel, in requests per second, beside a rate scale below it."""
    second = axes.secondary_xaxis("top", functions=(_times(per_scale), _times(1 / per_scale)))
    second.set_xlabel("requests per second", fontsize=8)


def _times(factor: float) -> Callable[[ArrayLike], ArrayLike]:
    return lambda values: np.asarray(values, dtype=float) * factor


def mark_simulated(axes: Axes, sources: Sequence[str], above: bool = False) -> None:
    """Write across a panel that what it shows was simulated, wholly or in part. above: over bars that would hide it."""
    if any("simulated" in source for source in sources):
        word = "simulated" if set(sources) == {"simulated"} else "partly simulated"
        axes.text(
            0.5, 0.5, word, transform=axes.transAxes, ha="center", va="center", fontsize=20,
            color="#666666" if above else "#bbbbbb", alpha=0.35 if above else 0.6, rotation=20, zorder=10 * above,
        )  # fmt: skip


def _wrapped(text: str, figure: Figure, letters_per_inch: float) -> str:
    """The text broken into lines that fit the figure."""
    return "\n".join(textwrap.wrap(text, int(figure.get_size_inches()[0] * letters_per_inch)))
