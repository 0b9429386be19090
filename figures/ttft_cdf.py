"""Distribution of TTFT by class at one rate: the share of due requests that had their first token by then."""

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from engine.core.record import RequestRecord, Status
from figures.attainment_rows import in_drawing_order
from figures.conditions import CONDITION, condition_labels, footnote, in_class_order, is_valid, with_conditions
from figures.curves import legend_handles, size_of
from figures.page import finish, mark_simulated, new_figure, theme
from figures.results import Inputs, MissingInputError
from figures.style import SeriesStyle, styles_of
from harness.measurement.latency import ttft_from_due_ns

TITLE = "Time to first token by class"
NEEDED = ("series", "seed", "rate_scale", "rate_rps", "point", "verdict")
POINTS_PER_CURVE = 100
SLO_LINE = (0, (3, 2))
NS_PER_S = 1_000_000_000


def rows(inputs: Inputs) -> pd.DataFrame:
    """Points of every curve, seeds pooled: share of the class's due requests with TTFT <= ttft_s.

    Raises MissingInputError, also where the raw records of a point are not there.
    """
    table = with_conditions(inputs.results.table(inputs.experiment, NEEDED))
    rate = chosen_rate(table) if inputs.rate_scale is None else inputs.rate_scale
    table = table[table["rate_scale"] == rate]
    if table.empty:
        raise MissingInputError(f"{inputs.experiment} has no point at rate_scale {rate:g}")
    found = []
    for keys, group in table.groupby([*CONDITION, "series"], sort=True):
        facts = {
            **dict(zip([*CONDITION, "series"], keys, strict=True)),
            "rate_scale": rate,
            "seeds": int(group["seed"].nunique()),
            "invalid_seeds": int((~is_valid(group["verdict"])).sum()),
        }
        records = [
            record for point in sorted(group["point"]) for record in inputs.results.records(inputs.experiment, point)
        ]
        for name in in_class_order(record.task for record in records):
            found += [{**facts, "panel": name, **point} for point in curve([r for r in records if r.task == name])]
    return in_drawing_order(pd.DataFrame(found), [*CONDITION, "panel", "share"])


def curve(records: Sequence[RequestRecord]) -> list[dict[str, float | int]]:
    """The distribution over all due requests: a request that did not end well never reaches a TTFT (a miss).

    At most 100 points, at evenly spaced ranks; the first and the last are always among them. Where nothing was
    answered, one point of share 0 and no TTFT.
    """
    reached = sorted(ttft for r in records if r.status is Status.OK and (ttft := ttft_from_due_ns(r)) is not None)
    slos = {r.ttft_slo_ns for r in records}
    slo = slos.pop() if len(slos) == 1 else None
    known = {"requests": len(records), "ttft_slo_s": float("nan") if slo is None else slo / NS_PER_S}
    if not reached:
        return [{"ttft_s": float("nan"), "share": 0.0, **known}]
    shown = min(len(reached), POINTS_PER_CURVE)
    ranks = [round(i * (len(reached) - 1) / max(1, shown - 1)) for i in range(shown)]
    return [{"ttft_s": max(reached[rank], 1) / NS_PER_S, "share": (rank + 1) / len(records), **known} for rank in ranks]


def chosen_rate(table: pd.DataFrame) -> float:
    """The rate that most series have; of several, the highest."""
    series = table.groupby("rate_scale")["series"].nunique()
    return float(series[series == series.max()].index.max())


def draw(rows: pd.DataFrame) -> Figure:
    """One panel per class; one row of panels per condition."""
    labels = condition_labels(rows)
    conditions, panels = list(dict.fromkeys(labels)), in_class_order(rows["panel"])
    styles = styles_of(rows["series"])
    across = min(len(panels), 4)
    down = -(-len(panels) // across)
    with theme():
        figure = new_figure(max(6.4, 1.2 + 2.7 * across), 1.7 + 2.7 * down * len(conditions))
        grid = figure.subplots(down * len(conditions), across, squeeze=False, sharey=True)
        for i, condition in enumerate(conditions):
            for j in range(down * across):
                axes = grid[i * down + j // across][j % across]
                if j >= len(panels):
                    axes.set_visible(False)
                    continue
                here = rows[(labels == condition) & (rows["panel"] == panels[j])]
                _draw_panel(axes, here, styles)
                prefix = f"{condition}: " if len(conditions) > 1 and j == 0 else ""
                axes.set_title(f"{prefix}{panels[j]}{_title_facts(here)}")
                axes.set_xlabel("TTFT, s" if j + across >= len(panels) and i == len(conditions) - 1 else "")
                axes.set_ylabel("due requests, %" if j % across == 0 else "")
        note = (
            f"Rate scale {rows['rate_scale'].iloc[0]:g}, seeds pooled; a request that failed or was never answered "
            "keeps its curve below 100\u00a0%."
        )
        hollow = " Hollow: measurement judged invalid." if (rows["invalid_seeds"] > 0).any() else ""
        finish(figure, TITLE, footnote(rows, note + hollow), [*legend_handles(styles, target=False), _slo_handle()])
    return figure


def _draw_panel(axes: Axes, rows: pd.DataFrame, styles: Mapping[str, SeriesStyle]) -> None:
    for place, (name, style) in enumerate(styles.items()):
        line = rows[rows["series"] == name]
        if line.empty:
            continue
        if line["ttft_s"].isna().all():  # nothing was answered: flat at 0
            line = line.assign(ttft_s=rows["ttft_s"].min())
        seconds = [line["ttft_s"].iloc[0], *line["ttft_s"], rows["ttft_s"].max()]
        percent = [0.0, *(100 * line["share"]), 100 * line["share"].iloc[-1]]
        axes.step(seconds, percent, where="post", color=style.colour, linestyle=style.line, linewidth=1.3)
        # one marker per curve, at a height of its own, so that curves that meet can be told apart
        mark = line.iloc[[round((len(line) - 1) * (0.35 + 0.5 * place / max(1, len(styles) - 1)))]]
        hollow = bool((line["invalid_seeds"] > 0).any())
        axes.plot(
            mark["ttft_s"], 100 * mark["share"], marker=style.marker, markersize=size_of(style) ** 0.5, zorder=4,
            linestyle="none",
            markeredgecolor=style.colour if hollow else "white", markeredgewidth=0.6,
            markerfacecolor="white" if hollow else style.colour,
        )  # fmt: skip
    for slo in sorted(set(rows["ttft_slo_s"].dropna())):
        axes.axvline(slo, color="#222222", linewidth=1.0, linestyle=SLO_LINE, zorder=1)
    axes.set_xscale("log")
    axes.set_ylim(0, 103)
    mark_simulated(axes, sorted(set(rows["source"])))


def _title_facts(rows: pd.DataFrame) -> str:
    """Requests behind the panel's curves, and its SLO where the class has one."""
    if rows.empty:
        return ": no requests"
    slos = sorted(set(rows["ttft_slo_s"].dropna()))
    return f" (n = {int(rows['requests'].max())}{', SLO ' if slos else ''}{' / '.join(f'{slo:.3g} s' for slo in slos)})"


def _slo_handle() -> Line2D:
    return Line2D([], [], color="#222222", linewidth=1.0, linestyle=SLO_LINE, label="TTFT SLO of the class")
