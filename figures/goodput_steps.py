"""Where the gain in max goodput comes from: each step from FCFS to FlowPrefill, and its factor over the step before."""

import math
from collections.abc import Hashable, Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.clairvoyant_bound import LIMIT, draw_limit, handles_of, with_limit
from figures.conditions import CONDITION, condition_labels, footnote, with_conditions
from figures.gain_split import CELL, REQUIRED_STEPS, STEP_LOOKS, STEPS
from figures.max_goodput_rows import SIGNS, max_goodput_rows
from figures.page import finish, mark_simulated, new_figure, theme
from figures.results import Inputs, MissingInputError

TITLE = "Where the gain in max goodput comes from: order, granularity, batching"
FACTORS = ("ratio", "ratio_low", "ratio_high")


def rows(inputs: Inputs) -> pd.DataFrame:
    """One row per step: its max goodput and its factor over the step before, seeds paired. Raises MissingInputError."""
    cells = inputs.results.table(f"{inputs.experiment}_max_goodput", ("series", *CELL))
    goodput = max_goodput_rows(inputs.results, inputs.experiment)
    names = cells.assign(**{name: cells[name].fillna("none") for name in CELL}).set_index("series")[list(CELL)]
    ratios = with_conditions(inputs.results.table(f"{inputs.experiment}_ratios", ("series", "reference", *FACTORS)))
    found = []
    for keys, here in goodput.groupby(list(CONDITION), sort=True):
        before: str | None = None
        pairs = ratios[(ratios[list(CONDITION)] == list(keys)).all(axis=1)]
        for place, (name, cell) in enumerate(STEPS):
            chosen = [series for series in here["series"] if tuple(names.loc[series]) == cell]
            if not chosen:
                if place < REQUIRED_STEPS:
                    raise MissingInputError(f"the table of {inputs.experiment} has no max goodput of step {name!r}")
                continue
            row = here[here["series"] == chosen[0]].iloc[0].to_dict()
            factor = pairs[(pairs["series"] == chosen[0]) & (pairs["reference"] == before)]
            row.update(step=place, step_name=name)
            row.update({f"step_{end}": float(factor[end].iloc[0]) if len(factor) else math.nan for end in FACTORS})
            row.update(step_bound=str(factor["ratio_bound"].astype(object).fillna("").iloc[0]) if len(factor) else "")
            found.append(row)
            before = chosen[0]
    return with_limit(pd.DataFrame(found), inputs.results, inputs.experiment)


def draw(rows: pd.DataFrame) -> Figure:
    """A panel per condition: a bar per step."""
    labels = condition_labels(rows)
    panels = list(dict.fromkeys(labels))
    with theme():
        figure = new_figure(max(6.4, 0.8 + 5.6 * len(panels)), 4.2)
        grid = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
        for axes, panel in zip(grid, panels, strict=True):
            here = rows[labels == panel]
            _draw_steps(axes, here)
            axes.set_title(panel if len(panels) > 1 else "")
            mark_simulated(axes, sorted(set(here["source"])), above=True)
        grid[0].set_ylabel("max goodput, rate scale")
        note = (
            "Lines: 95\u00a0% interval from resampling seeds. Factors are over the step before, seeds paired; another "
        )
        note += "order of steps would split the same total differently."
        finish(figure, TITLE, footnote(rows, note), handles_of(rows, LIMIT))
    return figure


def _draw_steps(axes: Axes, rows: pd.DataFrame) -> None:
    reach = float(rows["max_goodput_rate_scale"].max())
    for place, row in enumerate(rows.sort_values("step").to_dict("records")):
        colour, hatch = STEP_LOOKS[int(row["step"])]
        value, low, high = (float(row[f"max_goodput_{end}rate_scale"]) for end in ("", "low_", "high_"))
        open_end = bool(row["bound"])
        axes.bar(
            place, value, width=0.62, hatch=hatch, linewidth=0.9, zorder=2, color="white" if open_end else colour,
            edgecolor=colour if open_end else "white",
        )  # fmt: skip
        top = value
        if not open_end and not math.isnan(low):
            top = value if math.isinf(high) else high
            axes.vlines(place, low, top, color="#222222", linewidth=1.1, zorder=4)
        sign = SIGNS.get(str(row["bound"]), "")
        axes.annotate(
            f"{sign}{value:.3g}{_factor(row)}", (place, top), xytext=(0, 4), textcoords="offset points", ha="center",
            va="bottom", fontsize=7.5, zorder=6,
        )  # fmt: skip
    axes.set_xticks(range(len(rows)), [_two_lines(str(name)) for name in rows.sort_values("step")["step_name"]])
    axes.set_xlim(-0.6, len(rows) - 0.4)
    axes.set_ylim(0, 1.32 * reach)
    draw_limit(axes, rows)
    axes.grid(visible=False, axis="x")


def _factor(row: Mapping[Hashable, Any]) -> str:
    factor = float(row["step_ratio"])
    if math.isnan(factor):
        return ""
    sign = SIGNS.get(str(row["step_bound"]), "")
    low, high = float(row["step_ratio_low"]), float(row["step_ratio_high"])
    spread = "" if math.isnan(low) else f"\n[{low:.3g}, {'∞' if math.isinf(high) else f'{high:.3g}'}]"
    return f"\n{sign}{factor:.3g}×{spread}"


def _two_lines(text: str) -> str:
    head, _, tail = text.rpartition(" ")
    return text if len(text) < 9 else f"{head}\n{tail}"
