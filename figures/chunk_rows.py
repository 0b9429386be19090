"""The experiment on chunk sizes: throughput at saturation, response at the trace's own rate, and max goodput."""

import math

import pandas as pd

from figures.clairvoyant_bound import LIMIT, OPEN, with_limit
from figures.conditions import CONDITION, is_valid, refuse_twins, with_conditions
from figures.max_goodput_rows import max_goodput_rows
from figures.results import MissingInputError, Results
from figures.seed_means import value_over_seeds

NEEDED = (
    "series", "system", "policy", "granularity", "chunk_tokens", "seed", "rate_scale", "verdict", "source",
    "prefill_tokens_per_s", "attainment", "attainment_text",
)  # fmt: skip
CHUNKED, LEVEL = "chunked", "level"
METRICS = {
    "prefill_tokens_per_s": "prefill throughput, tokens/s",
    "attainment_text": "text: TTFT SLO met, %",
    "max_goodput": "max goodput, rate scale",
}
"""Throughput: tokens per second of executing. Response: of text, whose SLO is the tightest. Max goodput: of both."""

FACTS = ("series", "system", "policy", "granularity", "chunk_tokens")
OWN_RATE = 1.0


def chunk_rows(results: Results, experiment: str) -> pd.DataFrame:
    """Rows of metric, kind (chunked, or level: a system without chunks), value, low and high, rate_scale and seeds.

    Throughput is that of the highest rate of each series, response that of the rate nearest to the trace's own.
    Raises MissingInputError.
    """
    table = with_conditions(results.table(experiment, NEEDED))
    table = table[is_valid(table["verdict"])].assign(chunk_tokens=table["chunk_tokens"].fillna(0))
    refuse_twins(table, "rate_scale", experiment)
    if not (table["chunk_tokens"] > 0).any():
        raise MissingInputError(f"the table of {experiment} has no chunk size")
    found: list[dict[str, object]] = []
    for _, condition in table.groupby(list(CONDITION), sort=True):
        rates = sorted(set(condition["rate_scale"]))
        chosen = {"prefill_tokens_per_s": rates[-1], "attainment_text": min(rates, key=lambda r: abs(r - OWN_RATE))}
        for metric, rate in chosen.items():
            for keys, group in condition[condition["rate_scale"] == rate].groupby([*CONDITION, *FACTS], sort=False):
                there = group[metric].dropna().astype(float).tolist()
                if there:
                    mean = value_over_seeds(there)
                    facts = dict(zip((*CONDITION, *FACTS), keys, strict=True))
                    found.append({**facts, "metric": metric, "rate_scale": rate, "seeds": len(there),
                                  "value": mean.mean, "low": mean.low, "high": mean.high, "bound": ""})  # fmt: skip
    rows = pd.concat([pd.DataFrame(found), _goodput(results, experiment, table)], ignore_index=True)
    rows["kind"] = [CHUNKED if tokens > 0 else LEVEL for tokens in rows["chunk_tokens"]]
    place = {name: i for i, name in enumerate(METRICS)}
    rows = rows.assign(place=rows["metric"].map(place))
    order = [*CONDITION, "place", "kind", "policy", "chunk_tokens", "series"]
    return rows.sort_values(order, kind="stable").drop(columns="place").reset_index(drop=True)


def _goodput(results: Results, experiment: str, table: pd.DataFrame) -> pd.DataFrame:
    try:
        goodput = with_limit(max_goodput_rows(results, experiment), results, experiment)
    except MissingInputError:  # one rate has no crossing
        return pd.DataFrame()
    facts = table.drop_duplicates("series")[[*FACTS]]
    goodput = goodput.drop(columns=["system", "granularity"]).merge(facts, on="series")
    return pd.DataFrame(
        {
            **{name: goodput[name] for name in (*CONDITION, *FACTS, "seeds", "bound", LIMIT, OPEN)},
            "metric": "max_goodput",
            "rate_scale": math.nan,
            "value": goodput["max_goodput_rate_scale"],
            "low": goodput["max_goodput_low_rate_scale"],
            "high": goodput["max_goodput_high_rate_scale"].replace(math.inf, math.nan),
        }
    )
