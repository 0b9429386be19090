"""Who pays for the order: slowdown by class, and Jain's index beside it, at one rate."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.attainment_rows import ALL, in_drawing_order
from figures.conditions import (
    CONDITION,
    condition_labels,
    footnote,
    in_class_order,
    is_valid,
    refuse_twins,
    with_conditions,
)
from figures.page import finish, mark_simulated, new_figure, theme
from figures.results import Inputs, MissingInputError
from figures.seed_means import value_over_seeds
from figures.style import SeriesStyle, as_written, ordered, styles_of
from figures.ttft_cdf import chosen_rate

TITLE = "Slowdown by class, and how evenly it is spread"
NEEDED = ("point", "series", "seed", "rate_scale", "verdict")
FAIRNESS_NEEDED = ("point", "class", "n", "served", "slowdown_mean", "slowdown_p99", "jain")
JAIN = "jain"
ALL_SERVED = 0.9995
ROOM = 1.4
"""Factor left free at both ends of the slowdowns, which have one axis in all panels."""


def rows(inputs: Inputs) -> pd.DataFrame:
    """Per series and panel (all or a class), means over seeds at one rate: the one asked for, else that most series
    have. Raises MissingInputError."""
    table = with_conditions(inputs.results.table(inputs.experiment, NEEDED))
    shares = inputs.results.table(f"{inputs.experiment}_fairness", FAIRNESS_NEEDED)
    rate = chosen_rate(table) if inputs.rate_scale is None else inputs.rate_scale
    refuse_twins(table, "rate_scale", inputs.experiment)
    table = table[table["rate_scale"] == rate].assign(valid=is_valid(table["verdict"]))
    kept = [*CONDITION, "point", "series", "seed", "valid"]
    merged = table[kept].merge(shares[list(FAIRNESS_NEEDED)], on="point").rename(columns={"class": "panel"})
    merged = merged[merged["slowdown_mean"].notna()]
    if merged.empty:
        raise MissingInputError(f"no point of {inputs.experiment} at rate_scale {rate:g} has slowdowns")
    found = []
    for values, group in merged.groupby([*CONDITION, "series", "panel"], sort=True):
        group = group.sort_values("seed")
        slowdown, jain = (value_over_seeds(group[name].astype(float).tolist()) for name in ("slowdown_mean", "jain"))
        found.append(
            {
                **dict(zip([*CONDITION, "series", "panel"], values, strict=True)),
                "rate_scale": rate,
                "slowdown_mean": slowdown.mean,
                "slowdown_low": slowdown.low,
                "slowdown_high": slowdown.high,
                "slowdown_p99": float(group["slowdown_p99"].mean()),
                "jain": jain.mean,
                "jain_low": jain.low,
                "jain_high": jain.high,
                "requests": int(group["n"].sum()),
                "served_share": float(group["served"].sum() / group["n"].sum()),
                "seeds": int(group["seed"].nunique()),
                "invalid_seeds": int((~group["valid"]).sum()),
            }
        )
    return in_drawing_order(pd.DataFrame(found), [*CONDITION, "panel"])


def draw(rows: pd.DataFrame) -> Figure:
    """A row of panels per condition: slowdown over all and by class, then Jain's index; a line per series."""
    labels = condition_labels(rows)
    conditions, names = list(dict.fromkeys(labels)), ordered(rows["series"])
    panels = [ALL, *in_class_order(set(rows["panel"]) - {ALL})]
    reach = (float(rows["slowdown_mean"].min()) / ROOM, float(rows["slowdown_p99"].max()) * ROOM)
    styles = styles_of(names)
    with theme():
        figure = new_figure(3.0 + 1.9 * (len(panels) + 1), 1.5 + (0.7 + 0.27 * len(names)) * len(conditions))
        grid = figure.subplots(len(conditions), len(panels) + 1, squeeze=False, sharey=True)
        for i, condition in enumerate(conditions):
            here = rows[labels == condition]
            for axes, panel in zip(grid[i], [*panels, JAIN], strict=True):
                shown = here[here["panel"] == (ALL if panel == JAIN else panel)]
                if panel == JAIN:
                    _spread(axes, shown, names, styles)
                else:
                    _slowdown(axes, shown, names, styles)
                    axes.set_xlim(reach)
                axes.set_title("Jain's index, all" if panel == JAIN else "all requests" if panel == ALL else panel)
                if i == len(conditions) - 1:
                    axes.set_xlabel("1 = all slowed alike" if panel == JAIN else "slowdown")
                mark_simulated(axes, sorted(set(shown["source"])))
            grid[i][0].set_yticks(range(len(names)), [as_written(name) for name in names])
            grid[i][0].set_ylim(len(names) - 0.4, -0.6)
            if len(conditions) > 1:
                grid[i][0].set_ylabel(condition)
        note = (
            f"Rate scale {rows['rate_scale'].iloc[0]:g}. Slowdown: TTFT over the unloaded prefill time of the same "
            "prompt. Mark: mean, with a 95\u00a0% interval over seeds; tick: p99. Requests without a first token are "
            "in neither; where there are any, the share served stands beside the mark."
        )
        hollow = " Hollow: measurement judged invalid." if (rows["invalid_seeds"] > 0).any() else ""
        finish(figure, TITLE, footnote(rows, note + hollow))
    return figure


def _slowdown(axes: Axes, rows: pd.DataFrame, names: list[str], styles: dict[str, SeriesStyle]) -> None:
    for row in rows.to_dict("records"):
        y, style = names.index(str(row["series"])), styles[str(row["series"])]
        mean, p99 = float(row["slowdown_mean"]), float(row["slowdown_p99"])
        axes.hlines(y, mean, p99, color=style.colour, linewidth=0.8, alpha=0.6, zorder=2)
        axes.plot([p99], [y], marker="|", color=style.colour, markersize=7, linestyle="none", zorder=3)
        ends = (mean, row["slowdown_low"], row["slowdown_high"])
        _mark(axes, y, ends, style, row["invalid_seeds"] > 0)
        if row["served_share"] < ALL_SERVED:
            share = f"{100 * row['served_share']:.0f} %"
            axes.annotate(share, (mean, y), xytext=(0, 5), textcoords="offset points", ha="center", fontsize=6)
    axes.set_xscale("log")
    axes.grid(visible=False, axis="y")


def _spread(axes: Axes, rows: pd.DataFrame, names: list[str], styles: dict[str, SeriesStyle]) -> None:
    for row in rows.to_dict("records"):
        style = styles[str(row["series"])]
        ends = (row["jain"], row["jain_low"], row["jain_high"])
        _mark(axes, names.index(str(row["series"])), ends, style, row["invalid_seeds"] > 0)
    axes.set_xlim(0, 1.02)
    axes.grid(visible=False, axis="y")


def _mark(axes: Axes, y: int, ends: tuple[float, float, float], style: SeriesStyle, hollow: bool) -> None:
    middle, low, high = ends
    axes.hlines(y, low, high, color=style.colour, linewidth=2.2, zorder=4)
    axes.plot(
        [middle], [y], marker=style.marker, markersize=6, linestyle="none", zorder=5, markeredgewidth=0.6,
        markeredgecolor=style.colour if hollow else "white", markerfacecolor="white" if hollow else style.colour,
    )  # fmt: skip
