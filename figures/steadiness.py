"""Is the steady state steady: attainment at a system's own max goodput, and with arrivals twice as long."""

import numpy as np
import pandas as pd

from figures.conditions import CONDITION, is_valid, with_conditions
from figures.results import DamagedTableError, MissingInputError, Results
from figures.seed_means import value_over_seeds

ONCE, DOUBLED = "sim_steady_state", "sim_steady_state_doubled"
NEEDED = ("series", "seed", "rate_scale", "attainment", "verdict")
STEADY_POINTS = 1.0
"""A state is steady where doubling the length of the arrivals changes attainment by less than this."""


def steadiness_rows(results: Results, goodput: pd.DataFrame) -> pd.DataFrame:
    """One row per condition and series that has both lengths: attainment of either, and the change in points.

    goodput: the series' max goodput under the steady-state protocol; between two rates attainment is a straight line.
    Seeds are paired. Empty where the doubled runs are not there.
    """
    try:
        once, doubled = (_valid(results.table(name, NEEDED)) for name in (ONCE, DOUBLED))
    except DamagedTableError:
        raise
    except MissingInputError:
        return pd.DataFrame()
    found = []
    for row in goodput[goodput["protocol"].eq("steady_state") & goodput["bound"].eq("")].to_dict("records"):
        rate = float(row["max_goodput_rate_scale"])
        facts = {column: row[column] for column in (*CONDITION, "series")}
        short, long = (_at_rate(table, facts, rate) for table in (once, doubled))
        seeds = sorted(set(short) & set(long))
        if not seeds:
            continue
        change = value_over_seeds([100 * (long[seed] - short[seed]) for seed in seeds])
        found.append(
            {
                **facts,
                "rate_scale": rate,
                "attainment_once": sum(short[seed] for seed in seeds) / len(seeds),
                "attainment_doubled": sum(long[seed] for seed in seeds) / len(seeds),
                "change_points": change.mean,
                "change_low": change.low,
                "change_high": change.high,
                "seeds": len(seeds),
            }
        )
    return pd.DataFrame(found)


def steadiness_text(rows: pd.DataFrame) -> list[str]:
    """The same as lines of Markdown."""
    if rows.empty:
        return ["Whether the steady state is steady was not run: no points with arrivals twice as long."]
    lines = [
        f"Arrivals twice as long, at each system's own max goodput (steady: a change under {STEADY_POINTS:g} point):",
        "",
        "| series | rate scale | attainment, % | twice as long, % | change, points | steady |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows.to_dict("records"):
        spread = "" if pd.isna(row["change_low"]) else f" [{row['change_low']:+.2g}, {row['change_high']:+.2g}]"
        steady = "yes" if abs(row["change_points"]) < STEADY_POINTS else "no"
        lines.append(
            f"| {row['series']} | {row['rate_scale']:.3g} | {100 * row['attainment_once']:.1f} | "
            f"{100 * row['attainment_doubled']:.1f} | {row['change_points']:+.2g}{spread} | {steady} |"
        )
    return lines


def _valid(table: pd.DataFrame) -> pd.DataFrame:
    return with_conditions(table[is_valid(table["verdict"]) & table["attainment"].notna()])


def _at_rate(table: pd.DataFrame, facts: dict[str, object], rate: float) -> dict[int, float]:
    """Attainment by seed at a rate; a seed whose rates do not reach around it has none."""
    chosen = table[(table[list(facts)] == list(facts.values())).all(axis=1)].sort_values("rate_scale")
    return {
        int(str(seed)): float(np.interp(rate, points["rate_scale"], points["attainment"]))
        for seed, points in chosen.groupby("seed")
        if points["rate_scale"].min() <= rate <= points["rate_scale"].max()
    }
