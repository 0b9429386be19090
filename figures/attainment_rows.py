"""The rows behind a curve of SLO attainment: one per condition, series, panel (all or a class) and axis value."""

import pandas as pd

from figures.conditions import CONDITION, classes_of, is_valid, refuse_twins, with_conditions
from figures.seed_means import share_over_seeds
from figures.style import ordered

ALL = "all"
NEEDED = ("series", "seed", "rate_scale", "rate_rps", "attainment", "attainment_n", "verdict", "point")


def attainment_rows(table: pd.DataFrame, axis: str, experiment: str, by: tuple[str, ...] = ()) -> pd.DataFrame:
    """Mean attainment over seeds with its interval, for `axis` ("rate_scale" or "slo_scale").

    by: further columns that set points apart. A class without requests in a seed leaves that seed out of the class.
    """
    frame = with_conditions(table)
    frame["valid"] = is_valid(frame["verdict"])
    conditions = [column for column in CONDITION if column != axis]
    refuse_twins(frame, axis, experiment, by)
    keys = [*conditions, "series", *by, axis]
    rows = []
    for values, group in frame.groupby(keys, sort=True):
        for panel in (ALL, *classes_of(frame)):
            column, count = ("attainment", "attainment_n") if panel == ALL else (f"attainment_{panel}", f"n_{panel}")
            there = group[group[column].notna() & (group[count].fillna(0) > 0)].sort_values("seed")
            if there.empty:
                continue
            mean = share_over_seeds(there[column].astype(float).tolist(), there[count].astype(int).tolist())
            rows.append(
                {
                    **dict(zip(keys, values, strict=True)),
                    "panel": panel,
                    "rate_rps": float(there["rate_rps"].mean()),
                    "attainment": mean.mean,
                    "attainment_low": mean.low,
                    "attainment_high": mean.high,
                    "interval": mean.interval,
                    "requests": int(there[count].sum()),
                    "seeds": int(there["seed"].nunique()),
                    "invalid_seeds": int((~there["valid"]).sum()),
                }
            )
    return in_drawing_order(pd.DataFrame(rows), [*conditions, "panel", *by, axis])


def in_drawing_order(rows: pd.DataFrame, then: list[str]) -> pd.DataFrame:
    """Rows by series in legend order, then by the given columns."""
    place = {name: i for i, name in enumerate(ordered(rows["series"]))}
    ranked = rows.assign(series_place=rows["series"].map(place)).sort_values(["series_place", *then], kind="stable")
    return ranked.drop(columns="series_place").reset_index(drop=True)
