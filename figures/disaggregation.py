"""Prefill and decode apart (xPyD) and together: first tokens, later tokens, and both in time, over the same rates.

Rates are per accelerator, so that two of them are held against twice the load of one.
"""

import re

import pandas as pd
from matplotlib.figure import Figure

from figures.attainment_rows import ALL, NEEDED, attainment_rows
from figures.clairvoyant_bound import bound_handle, bound_rows, draw_bound
from figures.conditions import condition_labels, footnote, interval_note
from figures.curves import draw_curves, legend_handles
from figures.page import finish, mark_simulated, new_figure, theme
from figures.results import Inputs, MissingInputError
from figures.style import styles_of

TITLE = "Prefill and decode apart (1P1D) and together: SLO attainment over the rate per accelerator"
METRICS = {
    "attainment": "TTFT SLO met",
    "tbt_attainment": "TBT SLO met in every gap",
    "attainment_joint": "both met",
}
X = "rate_scale_per_accelerator"
_INSTANCES = re.compile(r"_(\d+)p(\d+)d$")


def accelerators(system: str) -> int:
    """How many a system takes: x + y where its name ends in _xpyd, else one."""
    found = _INSTANCES.search(system)
    return int(found[1]) + int(found[2]) if found else 1


def rows(inputs: Inputs) -> pd.DataFrame:
    """Attainment of all requests by metric, series and rate per accelerator. Raises MissingInputError."""
    table = inputs.results.table(inputs.experiment, (*NEEDED, "system", *METRICS))
    if table["tbt_attainment"].isna().all():
        raise MissingInputError(f"the table of {inputs.experiment} has no tbt_attainment: nothing was decoded")
    shares = table["system"].map(accelerators)
    table = table.assign(**{X: table["rate_scale"] / shares, "rate_rps": table["rate_rps"] / shares})
    found = []
    for metric in METRICS:
        points = attainment_rows(table.assign(attainment=table[metric]), X, inputs.experiment)
        points = points.rename(columns={"rate_rps": "rate_rps_per_accelerator"})
        found.append(points[points["panel"] == ALL].drop(columns="panel").assign(metric=metric))
    limit = bound_rows(table, X, inputs.experiment)
    parts = [pd.concat(found).assign(kind="point"), limit.assign(metric="attainment")]
    return pd.concat([part for part in parts if len(part)], ignore_index=True)


def draw(rows: pd.DataFrame) -> Figure:
    """A row of panels per condition, a panel per metric."""
    labels, limit = condition_labels(rows), rows[rows["kind"] == "bound"]
    rows = rows[rows["kind"] == "point"]
    bands, styles = list(dict.fromkeys(labels)), styles_of(rows["series"])
    with theme():
        figure = new_figure(10.8, 1.8 + 3.0 * len(bands))
        grid = figure.subplots(len(bands), len(METRICS), squeeze=False, sharex=True, sharey=True)
        for i, band in enumerate(bands):
            for axes, (metric, title) in zip(grid[i], METRICS.items(), strict=True):
                here = rows[(labels[rows.index] == band) & (rows["metric"] == metric)]
                draw_curves(axes, here, X, styles)
                draw_bound(axes, limit[(labels[limit.index] == band) & (limit["metric"] == metric)], X)
                axes.set_title(f"{band}: {title}" if len(bands) > 1 else title)
                axes.set_xlim(left=0)
                mark_simulated(axes, sorted(set(here["source"])))
            grid[i][0].set_ylabel("requests, %")
        for axes in grid[-1]:
            axes.set_xlabel("rate scale per accelerator\n(1 = the trace's own rate)")
        bound = [bound_handle()] if len(limit) else []
        note = interval_note(rows) + (
            " The bound is of first tokens, as if decode steps cost nothing." if bound else ""
        )
        finish(figure, TITLE, footnote(rows, note), [*legend_handles(styles), *bound])
    return figure
