"""What is replayed: lengths by class, arrivals over time, each class's share of the requests and of the tokens."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from figures.conditions import in_class_order
from figures.page import finish, new_figure, theme
from figures.results import Inputs, MissingInputError
from figures.style import SeriesStyle, styles_of

TITLE = "The workload: lengths, arrivals and TTFT SLOs by class"
NEEDED = ("workload", "arrival_s", "task", "input_tokens", "ttft_slo_s")
BINS = 24
SHARES = tuple(i / 50 for i in range(51))
CLASS_LOOKS = {
    "text": SeriesStyle("#0072B2", "o"),
    "image": SeriesStyle("#E69F00", "^", (0.0, (5.0, 2.0)), "//"),
    "search": SeriesStyle("#009E73", "s", (0.0, (6.0, 1.5, 1.2, 1.5)), ".."),
    "file": SeriesStyle("#D55E00", "D", (0.0, (1.2, 1.4)), "xx"),
}


def rows(inputs: Inputs) -> pd.DataFrame:
    """Kind "length": input tokens at a share of a class. Kind "arrivals": requests and tokens in a stretch of time.
    Kind "class": its requests, tokens (sum, mean, p99, standard deviation) and SLO. Raises MissingInputError."""
    table = inputs.results.table(inputs.experiment, NEEDED)
    if table["workload"].nunique() != 1:
        raise MissingInputError(f"the table of {inputs.experiment} must hold one workload")
    table = table.assign(task=table["task"].fillna("").replace("", "unnamed"))
    found: list[dict[str, object]] = []
    for task in in_class_order(table["task"]):
        tokens = table.loc[table["task"] == task, "input_tokens"]
        facts = {"requests": len(tokens), "tokens": int(tokens.sum()), "tokens_mean": float(tokens.mean())}
        spread = {"tokens_p99": float(tokens.quantile(0.99)), "tokens_std": float(tokens.std(ddof=0))}
        slo = float(table.loc[table["task"] == task, "ttft_slo_s"].iloc[0])
        found.append({"kind": "class", "task": task, **facts, **spread, "ttft_slo_s": slo})
        found += [
            {"kind": "length", "task": task, "share": share, "tokens": float(tokens.quantile(share))}
            for share in SHARES
        ]
    width = float(table["arrival_s"].max()) / BINS or 1.0
    place = (table["arrival_s"] / width).astype(int).clip(upper=BINS - 1)
    for i in range(BINS):
        here = table[place == i]
        facts = {"requests": len(here), "tokens": int(here["input_tokens"].sum())}
        found.append({"kind": "arrivals", "task": "", "from_s": i * width, "to_s": (i + 1) * width, **facts})
    return pd.DataFrame(found).assign(workload=str(table["workload"].iloc[0]))


def draw(rows: pd.DataFrame) -> Figure:
    """Left the lengths, in the middle the arrivals, right the shares."""
    classes = rows[rows["kind"] == "class"]
    names = in_class_order(classes["task"])
    looks = {name: CLASS_LOOKS.get(name) or styles_of([name])[name] for name in names}
    with theme():
        figure = new_figure(11.0, 4.0)
        lengths, arrivals, shares = figure.subplots(1, 3)
        _draw_lengths(lengths, rows[rows["kind"] == "length"], looks)
        _draw_arrivals(arrivals, rows[rows["kind"] == "arrivals"])
        _draw_shares(shares, classes.set_index("task").loc[names], looks)
        span = float(rows["to_s"].max())
        total, tokens = classes["requests"].sum(), classes["tokens"].sum()
        note = (
            f"Workload {rows['workload'].iloc[0]}: {total:.0f} requests in {span:.0f} s ({total / span:.3g} per "
            f"second), {tokens / total:.0f} input tokens on average. Lengths as in the trace, arrivals as recorded, "
            "SLOs at scale 1."
        )
        finish(figure, TITLE, note, _handles(classes.set_index("task").loc[names], looks), 2)
    return figure


def _draw_lengths(axes: Axes, rows: pd.DataFrame, looks: Mapping[str, SeriesStyle]) -> None:
    for place, (name, look) in enumerate(looks.items()):
        line = rows[rows["task"] == name]
        axes.plot(line["tokens"], 100 * line["share"], color=look.colour, linestyle=look.line, linewidth=1.4)
        mark = line.iloc[[len(line) // 3 + 4 * place]]
        axes.plot(mark["tokens"], 100 * mark["share"], marker=look.marker, color=look.colour, markersize=6)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_title("input length")
    axes.set_xlabel("input tokens")
    axes.set_ylabel("requests of the class, %")
    axes.set_ylim(0, 103)


def _draw_arrivals(axes: Axes, rows: pd.DataFrame) -> None:
    width = rows["to_s"] - rows["from_s"]
    axes.bar(rows["from_s"], rows["requests"] / width, width=width, align="edge", color="#bbbbbb", edgecolor="white")
    axes.set_title("arrivals")
    axes.set_xlabel("seconds")
    axes.set_ylabel("requests per second")
    axes.grid(visible=False, axis="x")
    work = axes.twinx()
    work.step([*rows["from_s"], rows["to_s"].iloc[-1]], [*(rows["tokens"] / width / 1000), 0], where="post",
              color="#882255", linewidth=1.3)  # fmt: skip
    work.set_ylabel("thousand input tokens per second (line)", color="#882255")
    work.grid(visible=False)
    work.set_ylim(bottom=0)


def _draw_shares(axes: Axes, classes: pd.DataFrame, looks: Mapping[str, SeriesStyle]) -> None:
    for shift, column, pale in ((-0.2, "requests", True), (0.2, "tokens", False)):
        share = 100 * classes[column] / classes[column].sum()
        for place, name in enumerate(classes.index):
            look = looks[str(name)]
            axes.bar(
                place + shift, share[name], width=0.38, zorder=2, linewidth=0.9, edgecolor=look.colour,
                color="white" if pale else look.colour,
            )  # fmt: skip
            axes.annotate(
                f"{share[name]:.0f}", (place + shift, share[name]), xytext=(0, 2), textcoords="offset points",
                ha="center", fontsize=7,
            )  # fmt: skip
    names = [f"{name}\n{row['ttft_slo_s']:g} s" for name, row in classes.iterrows()]
    axes.set_xticks(range(len(classes)), names)
    axes.set_title("share of each class")
    axes.set_xlabel("class and its TTFT SLO")
    axes.set_ylabel("% of requests (hollow), of tokens (filled)")
    axes.grid(visible=False, axis="x")


def _handles(classes: pd.DataFrame, looks: Mapping[str, SeriesStyle]) -> list[Line2D | Patch]:
    return [
        Line2D(
            [], [], color=looks[str(name)].colour, linestyle=looks[str(name)].line, marker=looks[str(name)].marker,
            label=f"{name}: {row['requests']:.0f} requests, mean {row['tokens_mean']:.0f}, "
            f"p99 {row['tokens_p99']:.0f}, standard deviation {row['tokens_std']:.0f} tokens",
        )
        for name, row in classes.iterrows()
    ]  # fmt: skip
