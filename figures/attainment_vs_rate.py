"""SLO attainment over the request rate, overall and per class, with max goodput marked on the 90 % line."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from figures.attainment_rows import ALL, NEEDED, attainment_rows
from figures.clairvoyant_bound import bound_handle, bound_rows, draw_bound
from figures.conditions import CONDITION, condition_labels, footnote, in_class_order, interval_note
from figures.curves import TARGET, draw_curves, legend_handles
from figures.families import MOST_IN_A_PANEL, with_family
from figures.family_panels import family_figure
from figures.max_goodput_rows import max_goodput_rows
from figures.page import finish, mark_simulated, new_figure, requests_per_second_axis, theme
from figures.results import DamagedTableError, Inputs, MissingInputError
from figures.style import SeriesStyle, styles_of

TITLE = "SLO attainment over the request rate"


def rows(inputs: Inputs) -> pd.DataFrame:
    """What is drawn: kind "point" (attainment at a rate), "max_goodput" (where a curve crosses 90 %) and "bound" (the
    clairvoyant bound, where the table has it).

    Raises MissingInputError.
    """
    table = inputs.results.table(inputs.experiment, NEEDED)
    points = attainment_rows(table, "rate_scale", inputs.experiment).assign(kind="point")
    shown = [points, _marks(inputs, points), bound_rows(table, "rate_scale", inputs.experiment)]
    return with_family(pd.concat([part for part in shown if len(part)], ignore_index=True), table)


def _marks(inputs: Inputs, points: pd.DataFrame) -> pd.DataFrame:
    try:
        marks = max_goodput_rows(inputs.results, inputs.experiment)
    except DamagedTableError:
        raise
    except MissingInputError:  # the curves stand without their crossings: one rate has none
        return pd.DataFrame()
    marks = marks[marks["bound"] == ""].assign(kind="max_goodput", panel=ALL, attainment=TARGET)
    marks = marks.rename(columns={"max_goodput_rate_scale": "rate_scale", "max_goodput_rps": "rate_rps"})
    marks = marks[marks["series"].isin(points["series"])]
    shared = [column for column in points.columns if column in marks.columns]
    return marks[shared]


def draw(rows: pd.DataFrame) -> Figure:
    """One band of panels per condition: overall large, classes small beside it. Many series: a column per family."""
    points, marks = rows[rows["kind"] == "point"], rows[rows["kind"] == "max_goodput"]
    if points["series"].nunique() > MOST_IN_A_PANEL:
        note = footnote(points, interval_note(points))
        return family_figure(rows.assign(band=condition_labels(rows)), "rate_scale", "rate scale", TITLE, note)
    labels, bound = condition_labels(points), rows[rows["kind"] == "bound"]
    conditions = list(dict.fromkeys(labels))
    classes = in_class_order(set(points["panel"]) - {ALL})
    columns = -(-len(classes) // 2)
    styles = styles_of(points["series"])
    with theme():
        figure = new_figure(4.6 + 2.5 * columns, 1.7 + 3.3 * len(conditions))
        bands = figure.add_gridspec(len(conditions), 2 + columns)
        for i, condition in enumerate(conditions):
            here = points[labels == condition]
            cell = bands[i, :2].subgridspec(1, 1)
            overall = figure.add_subplot(cell[0, 0])
            prefix = f"{condition}: " if len(conditions) > 1 else ""
            _panel(overall, here[here["panel"] == ALL], styles, f"{prefix}all requests", large=True)
            if len(bound):
                draw_bound(overall, _same_condition(bound, here), "rate_scale")
            _mark_crossings(overall, _same_condition(marks, here), styles)
            _second_axis(overall, here)
            grid = bands[i, 2:].subgridspec(2, columns) if columns else None
            for j, name in enumerate(classes):
                assert grid is not None
                axes = figure.add_subplot(grid[j % 2, j // 2])
                _panel(axes, here[here["panel"] == name], styles, name, large=False)
                bottom = j % 2 == 1 or j == len(classes) - 1
                axes.set_xlabel("rate scale" if bottom else "")
                axes.tick_params(labelbottom=bottom)
        note = footnote(points, interval_note(points))
        if len(marks):
            note += " Triangles: max goodput (isotonic fit of the mean over valid points crosses 90\u00a0%)."
        if points["rate_scale"].nunique() == 1:
            note += " One rate only: its marks stand side by side."
        handles = [*legend_handles(styles), *([bound_handle()] if len(bound) else [])]
        finish(figure, TITLE, note, handles, 4 if columns else 2)
    return figure


def _panel(axes: Axes, rows: pd.DataFrame, styles: dict[str, SeriesStyle], title: str, large: bool) -> None:
    draw_curves(axes, rows, "rate_scale", styles)
    count = rows.groupby("series")["requests"].sum()
    share = f" (n = {int(rows['requests'].max())})" if len(count) and not large else ""
    axes.set_title(title + share)
    lowest, highest = float(rows["rate_scale"].min()), float(rows["rate_scale"].max())
    if lowest == highest:
        axes.set_xlim(0.8 * lowest, 1.2 * lowest)
        axes.set_xticks([lowest])
    else:
        axes.set_xlim(0, 1.05 * highest)
        axes.xaxis.set_major_locator(MaxNLocator(8 if large else 5, steps=[1, 2, 5, 10]))
    if large:
        axes.set_xlabel("rate scale (1 = the trace's own rate)")
        axes.set_ylabel("requests that met their TTFT SLO, %")
    mark_simulated(axes, sorted(set(rows["source"])))


def _mark_crossings(axes: Axes, marks: pd.DataFrame, styles: dict[str, SeriesStyle]) -> None:
    for name, rate in zip(marks["series"], marks["rate_scale"], strict=True):
        axes.plot(
            [rate], [100 * TARGET], marker=7, markersize=6, color=styles[name].colour,
            linestyle="none", markeredgecolor="#222222", markeredgewidth=0.6, zorder=6,
        )  # fmt: skip


def _same_condition(marks: pd.DataFrame, here: pd.DataFrame) -> pd.DataFrame:
    keys = [column for column in CONDITION if column in marks.columns]
    return marks.merge(here[keys].drop_duplicates(), on=keys) if len(marks) else marks


def _second_axis(axes: Axes, rows: pd.DataFrame) -> None:
    """Requests per second above the panel: the mean ratio of the two rates (a seed's own rate varies around it)."""
    if rows["rate_scale"].nunique() > 1:
        requests_per_second_axis(axes, float((rows["rate_rps"] / rows["rate_scale"]).mean()))
    axes.set_title(axes.get_title(loc="left"), loc="left", pad=3)
