"""Many series as small multiples: a column per family, the references and the clairvoyant bound in each."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from figures.attainment_rows import ALL
from figures.clairvoyant_bound import bound_handle, draw_bound
from figures.conditions import in_class_order
from figures.curves import draw_curves, legend_handles
from figures.families import REFERENCE, in_family_order
from figures.page import finish, mark_simulated, new_figure, theme
from figures.style import as_written, styles_of

LEGEND_LINE_IN = 0.19
OVERALL_IN, CLASS_IN = 2.4, 1.55
MOST_BANDS_WITH_CLASSES = 2


def family_figure(rows: pd.DataFrame, x: str, x_label: str, title: str, note: str) -> Figure:
    """Rows of kind "point" and "bound", with columns family, panel and `band` (what sets figures' rows apart).

    Per band a row of panels for all requests and, where there are few bands, one per class below it.
    """
    points, bound = rows[rows["kind"] == "point"], rows[rows["kind"] == "bound"]
    families, bands = in_family_order(points["family"]), list(dict.fromkeys(points["band"]))
    classes = in_class_order(set(points["panel"]) - {ALL}) if len(bands) <= MOST_BANDS_WITH_CLASSES else []
    panels = [ALL, *classes]
    own = {name: styles_of(points.loc[points["family"] == name, "series"]) for name in families}
    references = styles_of(points.loc[points["family"] == REFERENCE, "series"])
    legend_in = LEGEND_LINE_IN * (1 + max(map(len, own.values())))
    heights = [legend_in] + [OVERALL_IN if panel == ALL else CLASS_IN for _ in bands for panel in panels]
    with theme():
        figure = new_figure(0.8 + 2.75 * len(families), 1.5 + sum(heights))
        grid = figure.subplots(len(heights), len(families), squeeze=False, height_ratios=heights)
        for j, family in enumerate(families):
            _legend(grid[0][j], family, legend_handles(own[family], target=False))
            for i, (band, panel) in enumerate((band, panel) for band in bands for panel in panels):
                axes = grid[i + 1][j]
                here = points[(points["band"] == band) & (points["panel"] == panel)]
                shown = here[here["family"].isin([family, REFERENCE])]
                if panel == ALL and not bound.empty:
                    draw_bound(axes, bound[bound["band"] == band], x)
                draw_curves(axes, shown, x, {**references, **own[family]})
                _name_panel(axes, str(band) if len(bands) > 1 else "", str(panel), first=j == 0)
                _x_axis(axes, points[x], x_label, last=i + 2 == len(heights))
                mark_simulated(axes, sorted(set(shown["source"])))
        handles = legend_handles(references)
        finish(figure, title, note, [*handles, bound_handle()] if not bound.empty else handles, 4)
    return figure


def _legend(axes: Axes, family: str, handles: list[Line2D]) -> None:
    axes.set_axis_off()
    for handle in handles:
        handle.set_label(as_written(str(handle.get_label())))
    axes.legend(
        handles=handles, loc="upper left", bbox_to_anchor=(-0.05, 1.0), borderaxespad=0, handlelength=3.6,
        title=family, title_fontproperties={"weight": "bold", "size": 9}, alignment="left", labelspacing=0.25,
    )  # fmt: skip


def _name_panel(axes: Axes, band: str, panel: str, first: bool) -> None:
    named = "all requests" if panel == ALL else panel
    if band and panel == ALL:
        axes.set_title(band, fontsize=8)
    axes.set_ylabel(f"{named}, %" if first else "")
    axes.tick_params(labelleft=first)


def _x_axis(axes: Axes, values: "pd.Series[float]", label: str, last: bool) -> None:
    axes.set_xlim(0, 1.05 * float(values.max()))
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    axes.set_xlabel(label if last else "")
    axes.tick_params(labelbottom=last)
