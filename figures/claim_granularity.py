"""C2 and C3: blocking by granularity, and the trade-off of chunk sizes."""

import math
from dataclasses import replace
from statistics import fmean

import pandas as pd

from figures.chunk_rows import CHUNKED, chunk_rows
from figures.claim_findings import Finding, Outcome, is_flowprefill, is_simulated, rows_of
from figures.claims_file import Claim
from figures.conditions import with_conditions
from figures.granularity_rows import granularity_rows
from figures.results import MissingInputError, Results
from harness.measurement.uncertainty import bootstrap_mean, paired_ratio


def blocking_ratio(results: Results, claim: Claim) -> Finding:
    """Mean blocking at layer level over operator level, beside the ratio that operator times predict."""
    rows = _rows(results, claim)
    layer, operator = _setting(rows, "layer", claim), _setting(rows, "operator", claim)
    ours = float(layer["blocking_mean_ms"]) / float(operator["blocking_mean_ms"])
    predicted = float(layer["blocking_expected_mean_ms"]) / float(operator["blocking_expected_mean_ms"])
    note = f"operator level {operator['blocking_mean_ms']:.3g} ms, layer level {layer['blocking_mean_ms']:.3g} ms"
    if not math.isnan(predicted):
        note += f"; predicted ratio {predicted:.3g}, found {ours / predicted:.2g} of it"
    if ours >= claim.threshold * (1 - claim.tolerance):
        outcome = Outcome.REPRODUCED
    else:
        outcome = Outcome.WEAKER if ours > 1 else Outcome.CONTRADICTED
    found = Finding(claim, outcome, ours, note=note, simulated=is_simulated(rows))
    slow, fast = (_mean_by_seed(results, claim, setting) for setting in ("layer", "operator"))
    both = sorted(slow.keys() & fast.keys())
    if not both:
        return found
    return found.within(paired_ratio([slow[s] for s in both], [fast[s] for s in both], fmean)[1])


def operator_blocking(results: Results, claim: Claim) -> Finding:
    """Mean blocking at operator level, in ms; weaker while still below the layer level's."""
    rows = _rows(results, claim)
    operator, layer = _setting(rows, "operator", claim), _setting(rows, "layer", claim)
    ours = float(operator["blocking_mean_ms"])
    note = " ".join(
        f"{name} {operator[f'blocking_{column}_ms']:.3g} ms,"
        for name, column in (("median", "p50"), ("p99", "p99"), ("maximum", "max"))
    )
    note += f" layer level {layer['blocking_mean_ms']:.3g} ms on average"
    if ours <= claim.threshold * (1 + claim.tolerance):
        outcome = Outcome.REPRODUCED
    else:
        outcome = Outcome.WEAKER if ours < float(layer["blocking_mean_ms"]) else Outcome.CONTRADICTED
    found = Finding(claim, outcome, ours, note=note, simulated=is_simulated(rows))
    return found.within(bootstrap_mean(list(_mean_by_seed(results, claim, "operator").values())))


def chunk_trade_off(results: Results, claim: Claim) -> Finding:
    """Four parts. Each holds, is flat (within the tolerance) or is reversed; one reversed part contradicts."""
    rows = _rows(results, claim)
    chunks = rows[rows["chunk_tokens"].notna()].sort_values("chunk_tokens")
    if len(chunks) < 2:
        raise MissingInputError(f"{claim.table} has fewer than two chunk sizes")
    small, large, operator = chunks.iloc[0], chunks.iloc[-1], _setting(rows, "operator", claim)
    parts = {
        f"{small['setting']} blocks less than {large['setting']}": _share(large, small, "blocking_mean_ms"),
        f"{small['setting']} is slower than {large['setting']}": _share(large, small, "prefill_tokens_per_s"),
        f"operator level is as fast as {large['setting']}": _share(operator, large, "prefill_tokens_per_s"),
        f"operator level blocks less than {large['setting']}": _share(large, operator, "blocking_mean_ms"),
    }
    return from_parts(claim, parts, f"operator level is as fast as {large['setting']}", is_simulated(rows))


def chunk_trade_off_under_load(results: Results, claim: Claim) -> Finding:
    """The same from runs under load, in S-EDF order: response is the attainment of text at the trace's own rate,
    throughput that of the highest rate.

    Operator level is held against DistServe's throughput, whole prompts in batches of the same token bound: a large
    chunk also packs more requests into a step, which is a gain of batching and no matter of where a prefill can stop.
    """
    rows = rows_of(claim, chunk_rows(results, str(claim.table)), str(claim.table))
    chunks = rows[(rows["kind"] == CHUNKED) & rows["policy"].eq("s_edf")]
    sizes = sorted(set(chunks["chunk_tokens"]))
    if len(sizes) < 2:
        raise MissingInputError(f"{claim.table} has fewer than two chunk sizes in S-EDF order")
    small, large = (chunks[chunks["chunk_tokens"] == size] for size in (sizes[0], sizes[-1]))
    operator, whole = rows[is_flowprefill(rows)], rows[rows["system"].eq("distserve")]
    not_slower = "operator level is as fast as whole prompts (DistServe)"
    parts = {}
    for name, above, below, metric in (
        (f"chunk {sizes[0]:.0f} responds better than chunk {sizes[-1]:.0f}", small, large, "attainment_text"),
        (f"chunk {sizes[0]:.0f} is slower than chunk {sizes[-1]:.0f}", large, small, "prefill_tokens_per_s"),
        (not_slower, operator, whole, "prefill_tokens_per_s"),
        (f"operator level responds better than chunk {sizes[-1]:.0f}", operator, large, "attainment_text"),
    ):
        parts[name] = _value(above, metric, claim) / max(_value(below, metric, claim), 1e-9)
    found = from_parts(claim, parts, not_slower, is_simulated(rows))
    packed = _value(operator, "prefill_tokens_per_s", claim) / _value(large, "prefill_tokens_per_s", claim)
    found = replace(found, note=f"{found.note}; {packed:.3g} of the throughput of chunk {sizes[-1]:.0f}")
    goodput = chunks[(chunks["metric"] == "max_goodput") & (chunks["bound"] == "")]
    ours = operator[operator["metric"] == "max_goodput"]
    if goodput.empty or ours.empty:
        return found
    best = goodput.sort_values("value", kind="stable").iloc[-1]
    beside = (
        f"max goodput {ours['value'].iloc[0]:.3g}, of the best chunk ({best['chunk_tokens']:.0f}) {best['value']:.3g}"
    )
    return replace(found, note=f"{found.note}; {beside}")


def _value(rows: pd.DataFrame, metric: str, claim: Claim) -> float:
    found = rows.loc[rows["metric"] == metric, "value"]
    if len(found) != 1:
        raise MissingInputError(
            f"{claim.table} has {len(found)} values of {metric} for one system, the claim needs one"
        )
    return float(found.iloc[0])


def from_parts(claim: Claim, parts: dict[str, float], not_slower: str, simulated: bool) -> Finding:
    """parts: name -> a ratio that is above 1 where the part holds; `not_slower` also holds where it is 1."""
    states = {name: _state(share, claim.tolerance, equal_is_enough=name == not_slower) for name, share in parts.items()}
    note = "; ".join(f"{name}: {states[name]} (ratio {share:.3g})" for name, share in parts.items())
    if "reversed" in states.values():
        outcome = Outcome.CONTRADICTED
    else:
        outcome = Outcome.WEAKER if "flat" in states.values() else Outcome.REPRODUCED
    return Finding(claim, outcome, note=note, simulated=simulated)


def _rows(results: Results, claim: Claim) -> pd.DataFrame:
    return rows_of(claim, granularity_rows(results, str(claim.table)), str(claim.table))


def _mean_by_seed(results: Results, claim: Claim, setting: str) -> dict[int, float]:
    """Mean blocking time (ms) of each seed's run at this granularity, where pauses were asked for at all."""
    table = results.table(str(claim.table), ("granularity", "chunk_tokens", "blocking_mean_ms", "seed"))
    rows = rows_of(claim, with_conditions(table), str(claim.table))
    rows = rows[rows["granularity"].eq(setting) & rows["chunk_tokens"].isna() & rows["blocking_mean_ms"].notna()]
    return {int(str(seed)): fmean(there) for seed, there in rows.groupby("seed")["blocking_mean_ms"]}


def _state(share: float, tolerance: float, equal_is_enough: bool) -> str:
    if share < 1 - tolerance:
        return "reversed"
    return "holds" if equal_is_enough or share > 1 + tolerance else "flat"


def _share(above: pd.Series, below: pd.Series, column: str) -> float:
    return float(above[column]) / float(below[column])


def _setting(rows: pd.DataFrame, setting: str, claim: Claim) -> pd.Series:
    found = rows[(rows["setting"] == setting) & rows["blocking_mean_ms"].notna()]
    if len(found) != 1:
        raise MissingInputError(f"{claim.table} has {len(found)} measured settings {setting!r}, the claim needs one")
    return found.iloc[0]
