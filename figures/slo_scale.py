"""SLO attainment over the SLO scale: all requests, and every class."""

import pandas as pd
from matplotlib.figure import Figure

from figures.attainment_rows import ALL, NEEDED, attainment_rows
from figures.clairvoyant_bound import bound_handle, bound_rows, draw_bound
from figures.conditions import condition_labels, footnote, in_class_order, interval_note
from figures.curves import draw_curves, legend_handles
from figures.families import MOST_IN_A_PANEL, with_family
from figures.family_panels import family_figure
from figures.page import finish, mark_simulated, new_figure, theme
from figures.results import Inputs
from figures.style import styles_of

TITLE = "SLO attainment over the SLO scale"


def rows(inputs: Inputs) -> pd.DataFrame:
    """Attainment by series, SLO scale, rate and panel (all or a class). Raises MissingInputError."""
    table = inputs.results.table(inputs.experiment, (*NEEDED, "slo_scale"))
    by = ("rate_scale",)
    points = attainment_rows(table, "slo_scale", inputs.experiment, by).assign(kind="point")
    shown = [points, bound_rows(table, "slo_scale", inputs.experiment, by)]
    return with_family(pd.concat([part for part in shown if len(part)], ignore_index=True), table)


def draw(rows: pd.DataFrame) -> Figure:
    """One row of panels per condition and rate: overall, then the classes. Many series: a column per family."""
    labels = condition_labels(rows, ignore=("slo_scale",))
    bands = list(dict.fromkeys(zip(labels, rows["rate_scale"], strict=True)))
    points, bound = rows[rows["kind"] == "point"], rows[rows["kind"] == "bound"]
    alone = f"Rate scale {bands[0][1]:g}. " if len(bands) == 1 else ""
    note = footnote(points, f"{alone}Each SLO scale is a run of its own. {interval_note(points)}")
    if points["series"].nunique() > MOST_IN_A_PANEL:
        named = [f"{label}, rate scale {rate:g}" for label, rate in zip(labels, rows["rate_scale"], strict=True)]
        return family_figure(rows.assign(band=named), "slo_scale", "SLO scale", TITLE, note)
    panels = [ALL, *in_class_order(set(points["panel"]) - {ALL})]
    styles = styles_of(points["series"])
    with theme():
        figure = new_figure(max(6.4, 1.2 + 2.25 * len(panels)), 1.5 + 2.5 * len(bands))
        grid = figure.subplots(len(bands), len(panels), squeeze=False, sharex=True, sharey=True)
        for i, (condition, rate) in enumerate(bands):
            here = points[(labels[points.index] == condition) & (points["rate_scale"] == rate)]
            limit = bound[(labels[bound.index] == condition) & (bound["rate_scale"] == rate)]
            for j, panel in enumerate(panels):
                axes, shown = grid[i][j], here[here["panel"] == panel]
                draw_curves(axes, shown, "slo_scale", styles)
                if panel == ALL and len(limit):
                    draw_bound(axes, limit, "slo_scale")
                mark_simulated(axes, sorted(set(shown["source"])))
                axes.set_title("all requests" if panel == ALL else str(panel))
                if i == len(bands) - 1:
                    axes.set_xlabel("SLO scale")
            several = f"{condition}, rate scale {rate:g}\n" if len(bands) > 1 else ""
            grid[i][0].set_ylabel(f"{several}TTFT SLO met, %")
        handles = [*legend_handles(styles), *([bound_handle()] if len(bound) else [])]
        finish(figure, TITLE, note, handles)
    return figure
