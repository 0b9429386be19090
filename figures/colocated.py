"""Prefill and decode on one instance: first tokens in time, and with every later token in time, too."""

import pandas as pd
from matplotlib.figure import Figure

from figures.attainment_rows import ALL, NEEDED, attainment_rows
from figures.clairvoyant_bound import bound_handle, bound_rows, draw_bound
from figures.conditions import condition_labels, footnote, interval_note
from figures.curves import draw_curves, legend_handles
from figures.page import finish, mark_simulated, new_figure, theme
from figures.results import Inputs, MissingInputError
from figures.style import styles_of

TITLE = "Prefill and decode on one instance: SLO attainment over the request rate"
METRICS = {"attainment": "TTFT SLO met", "attainment_joint": "TTFT SLO and every gap's TBT SLO met"}


def rows(inputs: Inputs) -> pd.DataFrame:
    """Attainment of all requests by metric, series and rate. Raises MissingInputError."""
    table = inputs.results.table(inputs.experiment, (*NEEDED, *METRICS))
    if table["attainment_joint"].isna().all():
        raise MissingInputError(f"the table of {inputs.experiment} has no attainment_joint: nothing was decoded")
    found = []
    for metric in METRICS:
        points = attainment_rows(table.assign(attainment=table[metric]), "rate_scale", inputs.experiment)
        found.append(points[points["panel"] == ALL].drop(columns="panel").assign(metric=metric))
    limit = bound_rows(table, "rate_scale", inputs.experiment)
    parts = [pd.concat(found).assign(kind="point"), limit.assign(metric="attainment")]
    return pd.concat([part for part in parts if len(part)], ignore_index=True)


def draw(rows: pd.DataFrame) -> Figure:
    """A row of panels per condition: first tokens, and all tokens."""
    labels, limit = condition_labels(rows), rows[rows["kind"] == "bound"]
    rows = rows[rows["kind"] == "point"]
    bands, styles = list(dict.fromkeys(labels)), styles_of(rows["series"])
    with theme():
        figure = new_figure(8.4, 1.7 + 3.0 * len(bands))
        grid = figure.subplots(len(bands), len(METRICS), squeeze=False, sharex=True, sharey=True)
        for i, band in enumerate(bands):
            for axes, (metric, title) in zip(grid[i], METRICS.items(), strict=True):
                here = rows[(labels[rows.index] == band) & (rows["metric"] == metric)]
                draw_curves(axes, here, "rate_scale", styles)
                draw_bound(axes, limit[(labels[limit.index] == band) & (limit["metric"] == metric)], "rate_scale")
                axes.set_title(f"{band}: {title}" if len(bands) > 1 else title)
                axes.set_xlim(left=0)
                mark_simulated(axes, sorted(set(here["source"])))
            grid[i][0].set_ylabel("requests, %")
        for axes in grid[-1]:
            axes.set_xlabel("rate scale (1 = the trace's own rate)")
        bound = [bound_handle()] if len(limit) else []
        note = interval_note(rows) + (
            " The bound is of first tokens, as if decode steps cost nothing." if bound else ""
        )
        finish(figure, TITLE, footnote(rows, note), [*legend_handles(styles), *bound])
    return figure
