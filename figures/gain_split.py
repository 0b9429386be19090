"""Where the gain comes from: attainment by order, granularity and batching, and the gain of each step."""

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from figures.attainment_rows import NEEDED, attainment_rows
from figures.clairvoyant_bound import ATTAINABLE, draw_level, handles_of, with_attainable
from figures.conditions import CONDITION, condition_labels, footnote, interval_note, is_valid, with_conditions
from figures.curves import TARGET
from figures.page import finish, mark_simulated, new_figure, theme
from figures.results import Inputs, MissingInputError
from figures.seed_means import value_over_seeds
from figures.telling_rate import telling_rate

TITLE = "Where the gain comes from: order, granularity, batching"
CELL = ("policy", "granularity", "batching")
GRANULARITIES = ("none", "layer", "half_layer", "operator", "tile")
STEPS = (
    ("FCFS, no checks", ("fcfs", "none", "none")),
    ("+ S-EDF order", ("s_edf", "none", "none")),
    ("+ operator checks", ("s_edf", "operator", "none")),
    ("+ SLO-aware batching", ("s_edf", "operator", "slo_aware")),
    ("+ tiles", ("s_edf", "tile", "slo_aware")),
)
"""Each step adds one thing to the step before; the last is drawn where it was run."""

REQUIRED_STEPS = 4
MOST_RATES = 3
POLICY_LOOKS = {"fcfs": ("#D55E00", "s"), "edf": ("#E69F00", "^"), "s_edf": ("#0072B2", "o"), "srpt": ("#777777", "D")}
STEP_LOOKS = (("#D55E00", "\\\\"), ("#E69F00", "//"), ("#0072B2", ""), ("#009E73", ".."), ("#56B4E9", "xx"))


def rows(inputs: Inputs) -> pd.DataFrame:
    """Kind "cell": attainment of a combination. Kind "step": attainment after a step and its paired gain over seeds.

    Raises MissingInputError, also when one of the four steps was not run.
    """
    table = inputs.results.table(inputs.experiment, (*NEEDED, *CELL))
    table = table.assign(**{name: table[name].fillna("none") for name in CELL})
    table = table[table["rate_scale"].isin(_shown_rates(table))]
    series = table[list(CELL)].agg(", ".join, axis=1)
    cells = attainment_rows(table.assign(series=series), "rate_scale", inputs.experiment, by=CELL)
    cells = cells[cells["panel"] == "all"].assign(kind="cell")
    steps = _steps(with_conditions(table), inputs.experiment)
    return with_attainable(pd.concat([cells, steps], ignore_index=True), table)


def _shown_rates(table: pd.DataFrame) -> list[float]:
    """All rates where there are few; of many, the trace's own, the highest that the last step still carries, and the
    one above that."""
    rates = sorted(set(table["rate_scale"]))
    if len(rates) <= MOST_RATES:
        return rates
    last = table[(table[list(CELL)] == list(STEPS[REQUIRED_STEPS - 1][1])).all(axis=1)]
    own = min(rates, key=lambda rate: abs(rate - 1.0))
    carried = telling_rate(last, str(last["series"].iloc[0])) if len(last) else rates[len(rates) // 2]
    above = [rate for rate in rates if rate > carried]
    return sorted({own, carried, *above[:1]})


def _steps(table: pd.DataFrame, experiment: str) -> pd.DataFrame:
    found = []
    for keys, here in table.groupby([*CONDITION, "rate_scale"], sort=True):
        facts = dict(zip([*CONDITION, "rate_scale"], keys, strict=True))
        before: pd.Series | None = None
        for place, (name, cell) in enumerate(STEPS):
            chosen = here[(here[list(CELL)] == list(cell)).all(axis=1)]
            if chosen.empty:
                if place < REQUIRED_STEPS:
                    raise MissingInputError(
                        f"the table of {experiment} has no points of step {name!r} ({', '.join(cell)})"
                    )
                continue
            by_seed = chosen.set_index("seed")["attainment"].sort_index()
            gains = by_seed if before is None else (by_seed - before).dropna()
            if gains.empty:
                raise MissingInputError(f"step {name!r} of {experiment} has no seed in common with the step before")
            gain = value_over_seeds(gains.tolist())
            found.append(
                {
                    **facts,
                    "kind": "step",
                    "series": name,
                    "step": place,
                    "attainment": float(by_seed.mean()),
                    "gain": gain.mean if before is not None else float("nan"),
                    "gain_low": gain.low if before is not None else float("nan"),
                    "gain_high": gain.high if before is not None else float("nan"),
                    "seeds": len(gains),
                    "invalid_seeds": int((~is_valid(chosen["verdict"])).sum()),
                    "interval": gain.interval,
                }
            )
            before = by_seed
    return pd.DataFrame(found)


def draw(rows: pd.DataFrame) -> Figure:
    """One row per condition and rate: left every combination, right the steps from FCFS to FlowPrefill."""
    labels = condition_labels(rows)
    bands = list(dict.fromkeys(zip(labels, rows["rate_scale"], strict=True)))
    cells = rows[rows["kind"] == "cell"]
    with theme():
        figure = new_figure(10.0, 1.6 + 2.6 * len(bands))
        grid = figure.subplots(len(bands), 2, squeeze=False, sharex="col", sharey=True)
        for i, (condition, rate) in enumerate(bands):
            here = rows[(labels == condition) & (rows["rate_scale"] == rate)]
            _draw_cells(grid[i][0], here[here["kind"] == "cell"], cells)
            _draw_steps(grid[i][1], here[here["kind"] == "step"])
            for panel in grid[i]:
                draw_level(panel, 100 * float(here[ATTAINABLE].iloc[0]))
            several = len(set(labels)) > 1
            grid[i][0].set_title(f"{condition}, rate scale {rate:g}" if several else f"rate scale {rate:g}")
            grid[i][1].set_title("step by step, gain in points")
            grid[i][0].set_ylabel("TTFT SLO met, %")
            for panel in grid[i]:
                mark_simulated(panel, sorted(set(here["source"])), above=True)
        grid[-1][0].set_xlabel("where a prefill can stop")
        note = footnote(
            cells,
            interval_note(cells)
            + " Gains are paired by seed; another order of steps would split the same total differently.",
        )
        finish(figure, TITLE, note, [*_handles(cells), *handles_of(rows, ATTAINABLE)], columns=5)
    return figure


def _draw_cells(axes: Axes, here: pd.DataFrame, cells: pd.DataFrame) -> None:
    granularities = _granularities(cells)
    policies, batchings = _policies(cells), sorted(set(cells["batching"]))
    slots = [(policy, batching) for policy in policies for batching in batchings]
    width = 0.76 / len(slots)
    for row in here.to_dict("records"):
        place = (
            granularities.index(row["granularity"])
            - 0.38
            + width * (0.5 + slots.index((row["policy"], row["batching"])))
        )
        colour, marker = POLICY_LOOKS.get(row["policy"], ("#882255", "h"))
        low, value, high = (100 * row[name] for name in ("attainment_low", "attainment", "attainment_high"))
        hollow, batched = row["invalid_seeds"] > 0, row["batching"] != "none"
        axes.bar(
            place, value, width=0.92 * width, zorder=2, linewidth=0.8, edgecolor=colour if hollow else "white",
            color="white" if hollow else colour, alpha=1.0 if batched else 0.55, hatch="///" if batched else "",
        )  # fmt: skip
        axes.vlines(place, low, high, color="#222222", linewidth=0.9, zorder=4)
        axes.plot(
            [place],
            [value],
            marker=marker,
            color=colour,
            markersize=4.5,
            markeredgecolor="#222222",
            markeredgewidth=0.5,
            zorder=5,
        )
    axes.set_xticks(range(len(granularities)), [name.replace("_", " ") for name in granularities])
    axes.set_xlim(-0.5, len(granularities) - 0.5)
    axes.grid(visible=False, axis="x")
    axes.axhline(100 * TARGET, color="#444444", linewidth=0.8, linestyle=(0, (1, 1)), zorder=1)
    axes.set_ylim(0, 109)
    axes.set_yticks(range(0, 101, 20))


def _draw_steps(axes: Axes, here: pd.DataFrame) -> None:
    steps = here.sort_values("step").to_dict("records")
    before = 0.0
    for place, step in enumerate(steps):
        colour, hatch = STEP_LOOKS[int(step["step"])]
        after, hollow = 100 * step["attainment"], step["invalid_seeds"] > 0
        axes.bar(
            place, after - before, bottom=before, width=0.6, zorder=2, hatch=hatch, linewidth=0.8,
            color="white" if hollow else colour, edgecolor=colour if hollow else "white",
        )  # fmt: skip
        if place:
            axes.plot([place - 1.3, place + 0.3], [before, before], color="#666666", linewidth=0.8, zorder=3)
            spread = (
                ""
                if pd.isna(step["gain_low"])
                else f"\n[{100 * step['gain_low']:+.1f}, {100 * step['gain_high']:+.1f}]"
            )
            text = f"{100 * step['gain']:+.1f}{spread}"
        else:
            text = f"{after:.1f} %"
        top = max(before, after)
        inside = top > 88
        axes.annotate(
            text, (place, top if inside and not place else min(before, after) if inside else top),
            xytext=(0, -3 if inside else 3), textcoords="offset points",
            ha="center", va="top" if inside else "bottom", fontsize=7, zorder=6,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.8},
        )  # fmt: skip
        before = after
    axes.set_xticks(range(len(steps)), [_two_lines(step["series"]) for step in steps])
    axes.set_xlim(-0.6, len(steps) - 0.4)
    axes.grid(visible=False, axis="x")
    axes.axhline(100 * TARGET, color="#444444", linewidth=0.8, linestyle=(0, (1, 1)), zorder=1)


def _handles(cells: pd.DataFrame) -> list[Artist]:
    handles: list[Artist] = [
        Line2D(
            [],
            [],
            linestyle="none",
            marker=marker,
            color=colour,
            markersize=7,
            markeredgecolor="#222222",
            markeredgewidth=0.5,
            label=f"{policy} order",
        )
        for policy in _policies(cells)
        for colour, marker in [POLICY_LOOKS.get(policy, ("#882255", "h"))]
    ]
    for batching in sorted(set(cells["batching"])):
        plain = batching == "none"
        label = "no batching" if plain else f"{batching} batching"
        handles.append(
            Patch(
                facecolor="#999999",
                edgecolor="white",
                alpha=0.55 if plain else 1.0,
                hatch="" if plain else "///",
                label=label,
            )
        )
    return handles


def _policies(cells: pd.DataFrame) -> list[str]:
    present = set(cells["policy"])
    return [name for name in POLICY_LOOKS if name in present] + sorted(present - set(POLICY_LOOKS))


def _granularities(cells: pd.DataFrame) -> list[str]:
    present = set(cells["granularity"])
    return [name for name in GRANULARITIES if name in present] + sorted(present - set(GRANULARITIES))


def _two_lines(text: str) -> str:
    head, _, tail = text.rpartition(" ")
    return text if len(text) < 9 else f"{head}\n{tail}"
