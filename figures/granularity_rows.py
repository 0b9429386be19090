"""An experiment on granularity, one row per setting: where a prefill can stop, or the size of its chunks."""

import math

import pandas as pd

from figures.conditions import with_conditions
from figures.results import MissingInputError, Results
from figures.seed_means import mean_of

GRANULARITIES = ("none", "layer", "half_layer", "operator", "tile")
STATISTICS = ("mean", "p50", "p99", "max")
EXPECTED = ("blocking_expected_mean_ms", "blocking_predicted_mean_ms")
RATE = "rate_scale"
APART = ("model", "device")
KEYS = ("setting", "granularity", "chunk_tokens", "model", "device")


def granularity_rows(results: Results, experiment: str) -> pd.DataFrame:
    """Blocking (ms) and prefill throughput by setting, averaged over seeds and prompt lengths; the maximum stays one.

    Of pauses asked on purpose, or of those a scheduler asked under load: then by rate_scale, too.
    throughput_relative is over granularity none, and empty without it. Raises MissingInputError.
    """
    needed = ("granularity", "chunk_tokens", "source", "prefill_tokens_per_s", "blocking_n")
    table = results.table(experiment, (*needed, *(f"blocking_{name}_ms" for name in STATISTICS)))
    expected = next((column for column in EXPECTED if column in table.columns), None)
    under_load = RATE in table.columns
    if expected is None and not under_load:
        raise MissingInputError(f"the table of {experiment} has no column {EXPECTED[0]}")
    frame = with_conditions(table)
    frame["setting"] = [setting_of(g, c) for g, c in zip(frame["granularity"], frame["chunk_tokens"], strict=True)]
    keys = [*KEYS, RATE] if under_load else list(KEYS)
    found = []
    for values, group in frame.groupby(keys, sort=False, dropna=False):
        row = dict(zip(keys, values, strict=True))
        row["blocking_n"] = int(group["blocking_n"].sum())
        for name in ("mean", "p50", "p99"):
            row[f"blocking_{name}_ms"] = _mean(group[f"blocking_{name}_ms"])
        row["blocking_max_ms"] = float(group["blocking_max_ms"].max())
        row["blocking_expected_mean_ms"] = math.nan if expected is None else _mean(group[expected])
        row["prefill_tokens_per_s"] = _mean(group["prefill_tokens_per_s"])
        row["throughput_relative"] = _mean(group.get("prefill_tokens_per_s_relative", pd.Series(dtype=float)))
        row["source"] = " and ".join(sorted(set(group["source"].astype(str))))
        row["slo_speed_factor"] = _mean(group.get("slo_speed_factor", pd.Series(dtype=float)))
        row["seeds"] = int(group["seed"].nunique()) if "seed" in group else 1
        found.append(row)
    rows = pd.DataFrame(found)
    rows["place"] = [_place(g, c) for g, c in zip(rows["granularity"], rows["chunk_tokens"], strict=True)]
    rows = rows.sort_values([*APART, *([RATE] if under_load else []), "place"], kind="stable").drop(columns="place")
    return _with_relative(rows.reset_index(drop=True))


def setting_of(granularity: str, chunk_tokens: float | None) -> str:
    """The label of a setting: "chunk 512" where there is a chunk size, else the granularity."""
    return granularity if chunk_tokens is None or pd.isna(chunk_tokens) else f"chunk {int(chunk_tokens)}"


def _with_relative(rows: pd.DataFrame) -> pd.DataFrame:
    """Fill what the table leaves empty: throughput over that of granularity none on the same model and device."""
    for index, row in rows.iterrows():
        if pd.notna(row["throughput_relative"]):
            continue
        apart = [name for name in (*APART, RATE) if name in rows]
        same = (rows[apart] == row[apart]).all(axis=1) & (rows["setting"] == "none")
        if same.any():
            whole = float(rows.loc[same, "prefill_tokens_per_s"].iloc[0])
            rows.loc[index, "throughput_relative"] = row["prefill_tokens_per_s"] / whole
    return rows


def _place(granularity: str, chunk_tokens: float) -> tuple[int, float]:
    if not math.isnan(chunk_tokens):
        return (len(GRANULARITIES) + 1, chunk_tokens)
    known = granularity in GRANULARITIES
    return (GRANULARITIES.index(granularity) if known else len(GRANULARITIES), 0.0)


def _mean(values: pd.Series) -> float:
    there = values.dropna().astype(float).tolist()
    return mean_of(there) if there else float("nan")
