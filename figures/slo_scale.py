"""SLO attainment over the SLO scale: all requests, and every class."""

import pandas as pd
from matplotlib.figure import Figure

from figures.attainment_rows import ALL, NEEDED, attainment_rows
from figures.conditions import condition_labels, footnote, in_class_order, interval_note
from figures.curves import draw_curves, legend_handles
from figures.page import finish, mark_simulated, new_figure, theme
from figures.results import Inputs
from figures.style import styles_of

EXPERIMENT = "slo_scale"
TITLE = "SLO attainment over the SLO scale"


def rows(inputs: Inputs) -> pd.DataFrame:
    """Attainment by series, SLO scale, rate and panel (all or a class). Raises MissingInputError."""
    table = inputs.results.table(EXPERIMENT, (*NEEDED, "slo_scale"))
    return attainment_rows(table, "slo_scale", EXPERIMENT, by=("rate_scale",))


def draw(rows: pd.DataFrame) -> Figure:
    """One row of panels per condition and rate: overall, then the classes."""
    labels = condition_labels(rows, ignore=("slo_scale",))
    bands = list(dict.fromkeys(zip(labels, rows["rate_scale"], strict=True)))
    panels = [ALL, *in_class_order(set(rows["panel"]) - {ALL})]
    styles = styles_of(rows["series"])
    with theme():
        figure = new_figure(max(6.4, 1.2 + 2.25 * len(panels)), 1.5 + 2.5 * len(bands))
        grid = figure.subplots(len(bands), len(panels), squeeze=False, sharex=True, sharey=True)
        for i, (condition, rate) in enumerate(bands):
            here = rows[(labels == condition) & (rows["rate_scale"] == rate)]
            for j, panel in enumerate(panels):
                axes, shown = grid[i][j], here[here["panel"] == panel]
                draw_curves(axes, shown, "slo_scale", styles)
                mark_simulated(axes, sorted(set(shown["source"])))
                axes.set_title("all requests" if panel == ALL else str(panel))
                if i == len(bands) - 1:
                    axes.set_xlabel("SLO scale")
            several = f"{condition}, rate scale {rate:g}\n" if len(bands) > 1 else ""
            grid[i][0].set_ylabel(f"{several}TTFT SLO met, %")
        alone = f"Rate scale {bands[0][1]:g}. " if len(bands) == 1 else ""
        note = footnote(rows, f"{alone}Each SLO scale is a run of its own. {interval_note(rows)}")
        finish(figure, TITLE, note, legend_handles(styles))
    return figure
