"""How well a TTFT predictor fits: predicted and true prefill time over the prompt's length, and the relative error."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from figures.page import finish, mark_simulated, new_figure, theme
from figures.results import Inputs, MissingInputError
from figures.style import SeriesStyle, styles_of

TITLE = "The TTFT predictor's fit: prefill time over the prompt's length"
NEEDED = (
    "model", "device", "source", "predictor", "new_tokens", "context_tokens", "fitted", "true_s", "predicted_s",
    "relative_error",
)  # fmt: skip
LOOKS = {
    "polynomial": SeriesStyle("#0072B2", "o"),
    "operator_sum": SeriesStyle("#D55E00", "s", (0.0, (5.0, 2.0))),
}
TRUE_COLOUR = "#444444"
PERCENT = 100.0
ACROSS = 3


def rows(inputs: Inputs) -> pd.DataFrame:
    """Prefills of whole prompts by model, device, predictor and length. Raises MissingInputError."""
    table = inputs.results.table(inputs.experiment, NEEDED)
    found = table.loc[table["context_tokens"].eq(0) & table["relative_error"].notna(), list(NEEDED)]
    if found.empty:
        raise MissingInputError(f"the table of {inputs.experiment} has no prediction for a whole prompt")
    return found.sort_values(["model", "device", "predictor", "new_tokens"], kind="stable").reset_index(drop=True)


def draw(rows: pd.DataFrame) -> Figure:
    """Per model and device a panel of times and, below it, one of errors; at most three side by side."""
    conditions = list(dict.fromkeys(zip(rows["model"], rows["device"], strict=True)))
    names = list(dict.fromkeys(rows["predictor"]))
    looks = {name: LOOKS.get(name) or styles_of([name])[name] for name in names}
    across = min(ACROSS, len(conditions))
    bands = -(-len(conditions) // across)
    with theme():
        figure = new_figure(max(6.4, 1.0 + 3.1 * across), 1.6 + 4.6 * bands)
        grid = figure.subplots(2 * bands, across, squeeze=False, height_ratios=[3, 2] * bands)
        for i in range(bands * across):
            upper, lower = grid[2 * (i // across)][i % across], grid[2 * (i // across) + 1][i % across]
            if i >= len(conditions):
                upper.set_visible(False)
                lower.set_visible(False)
                continue
            model, device = conditions[i]
            here = rows[(rows["model"] == model) & (rows["device"] == device)]
            _draw_times(upper, here, looks)
            _draw_errors(lower, here, looks)
            upper.set_title(f"{model}, {device}")
            upper.set_ylabel("prefill time, s" if i % across == 0 else "")
            lower.set_ylabel("predicted over true, %" if i % across == 0 else "")
            for panel in (upper, lower):
                mark_simulated(panel, sorted(set(here["source"])))
        note = "Filled: lengths that the predictor was fitted to; hollow: lengths between them. Lengths as sent. "
        note += "SIMULATED: true times are the device model's, without its noise."
        finish(figure, TITLE, note, _handles(looks))
    return figure


def _draw_times(axes: Axes, rows: pd.DataFrame, looks: Mapping[str, SeriesStyle]) -> None:
    true = rows.drop_duplicates("new_tokens").sort_values("new_tokens")
    axes.plot(true["new_tokens"], true["true_s"], color=TRUE_COLOUR, linewidth=3.0, alpha=0.35)
    for name, line in rows.groupby("predictor", sort=False):
        look = looks[str(name)]
        axes.plot(line["new_tokens"], line["predicted_s"], color=look.colour, linestyle=look.line, linewidth=1.3)
    axes.set_xscale("log")
    axes.set_yscale("log")


def _draw_errors(axes: Axes, rows: pd.DataFrame, looks: Mapping[str, SeriesStyle]) -> None:
    axes.axhline(0, color=TRUE_COLOUR, linewidth=0.9)
    for name, line in rows.groupby("predictor", sort=False):
        look, error = looks[str(name)], PERCENT * line["relative_error"]
        axes.plot(line["new_tokens"], error, color=look.colour, linestyle=look.line, linewidth=0.9, alpha=0.7)
        for fitted, part in line.groupby("fitted"):
            axes.plot(
                part["new_tokens"], PERCENT * part["relative_error"], marker=look.marker, linestyle="none",
                markersize=3.6, color=look.colour, markerfacecolor=look.colour if fitted else "white",
                markeredgewidth=0.8,
            )  # fmt: skip
    axes.set_xscale("log")
    axes.set_xlabel("prompt, tokens")
    axes.set_title("\n".join(_typical(rows, name, len(looks)) for name in dict.fromkeys(rows["predictor"])), fontsize=7)


def _typical(rows: pd.DataFrame, name: str, predictors: int) -> str:
    """The size of the errors in words."""
    size = PERCENT * rows.loc[rows["predictor"] == name, "relative_error"].abs()
    return f"{f'{name}: ' * (predictors > 1)}mean {size.mean():.1f} %, largest {size.max():.0f} %"


def _handles(looks: Mapping[str, SeriesStyle]) -> list[Line2D]:
    true = Line2D([], [], color=TRUE_COLOUR, linewidth=3.0, alpha=0.35, label="true")
    return [true] + [
        Line2D([], [], color=look.colour, linestyle=look.line, marker=look.marker, markersize=5, label=name)
        for name, look in looks.items()
    ]
