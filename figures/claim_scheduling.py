"""C4 and C5: how often is decided and what that costs or saves; what wrong predictions and long inputs cost."""

import math

import pandas as pd

from figures.claim_findings import Finding, Outcome, is_flowprefill, is_simulated, rows_of
from figures.claims_file import Claim
from figures.conditions import is_valid
from figures.granularity_rows import granularity_rows
from figures.max_goodput_rows import max_goodput_rows
from figures.results import MissingInputError, Results
from figures.rounds import ON_EVENTS
from figures.seed_means import value_over_seeds
from figures.series_settings import setting_in
from harness.measurement.uncertainty import Interval, paired_ratio

NEEDED = ("system", "granularity", "seed", "decisions", "requests_due", "requests_ok", "verdict", "source")
LOST_POINTS = 1.0
"""Attainment counts as lost where it is more than this many points below another way of deciding."""

NO_EFFECT = 0.02
"""A max goodput within this share of another is the same."""

LONG_TAIL = 2.0
"""A longest pause of this many times the mean is one that a single long operator holds up."""


def rounds_per_event(results: Results, claim: Claim) -> Finding:
    """Scheduling rounds of FlowPrefill over arrivals and completions; weaker while still below chunked prefill."""
    table = rows_of(claim, results.table(str(claim.table), NEEDED), str(claim.table))
    table = table[is_valid(table["verdict"]) & table["decisions"].notna()]
    ours = _rounds(table[is_flowprefill(table)])
    if ours is None:
        raise MissingInputError(f"{claim.table} has no valid point of FlowPrefill with its decisions")
    chunked = _rounds(table[table["system"].eq("chunked_prefill")])
    note = "chunked prefill was not run" if chunked is None else f"chunked prefill {chunked:.3g}"
    if ours <= claim.threshold * (1 + claim.tolerance):
        outcome = Outcome.REPRODUCED
    else:
        outcome = Outcome.WEAKER if chunked is not None and ours < chunked else Outcome.CONTRADICTED
    found = Finding(claim, outcome, ours, note=note, simulated=is_simulated(table))
    return found.within(_rounds_interval(table[is_flowprefill(table)]))


def event_rounds(results: Results, claim: Claim) -> Finding:
    """Rounds when decided on events, and attainment held against every other way of deciding: none may gain a point.

    Attainment is the mean over the rates, seeds paired.
    """
    needed = (*NEEDED, "series", "rate_scale", "attainment")
    table = rows_of(claim, results.table(str(claim.table), needed), str(claim.table))
    table = table[is_valid(table["verdict"]) & table["attainment"].notna()]
    events = table[table["series"] == ON_EVENTS]
    ours = _rounds(events)
    if ours is None or set(table["series"]) == {ON_EVENTS}:
        raise MissingInputError(f"{claim.table} needs the series {ON_EVENTS!r} and another way of deciding")
    by_seed = table.pivot_table(index=["rate_scale", "seed"], columns="series", values="attainment").dropna()
    notes, lost, surely_lost = [], False, False
    for series in sorted(set(by_seed.columns) - {ON_EVENTS}):
        gaps = (100 * (by_seed[ON_EVENTS] - by_seed[series])).groupby("seed").mean()
        gap = value_over_seeds(gaps.tolist())
        lost |= gap.mean < -LOST_POINTS
        surely_lost |= (gap.mean if math.isnan(gap.high) else gap.high) < -LOST_POINTS
        rounds = _rounds(table[table["series"] == series])
        notes.append(f"{series}: {rounds:.3g} rounds, {gap.mean:+.2g} points for events")
    if ours > claim.threshold * (1 + claim.tolerance) or surely_lost:
        outcome = Outcome.CONTRADICTED
    else:
        outcome = Outcome.WEAKER if lost else Outcome.REPRODUCED
    found = Finding(claim, outcome, ours, note="; ".join(notes), simulated=is_simulated(table))
    return found.within(_rounds_interval(events))


def prediction_error(results: Results, claim: Claim) -> Finding:
    """Max goodput of FlowPrefill with the largest prediction error, over that without one."""
    name = f"{claim.table}_max_goodput"
    rows = rows_of(claim, max_goodput_rows(results, str(claim.table)), name)
    rows = rows[rows["system"].eq("flowprefill")]
    settings = {str(series): setting for series in rows["series"] if (setting := setting_in(str(series))) is not None}
    errors = {series: setting.value for series, setting in settings.items() if setting.name == "error"}
    if not errors or min(errors.values()) > 0 or len(errors) < 2:
        raise MissingInputError(f"{name} needs FlowPrefill without a prediction error and with one")
    worst, none = max(errors, key=lambda one: errors[one]), min(errors, key=lambda one: errors[one])
    row = rows[rows["series"] == worst].iloc[0]
    if row["reference"] != none:
        raise MissingInputError(f"{name} has no ratio of {worst} to {none}")
    simulated = is_simulated(rows)
    if pd.isna(row["ratio"]):
        return Finding(claim, Outcome.NOT_RUN, note="the rates tried do not bound the ratio", simulated=simulated)
    ratio, bound = float(row["ratio"]), str(row["ratio_bound"])
    low, high = (None if pd.isna(row[end]) else float(row[end]) for end in ("ratio_low", "ratio_high"))
    note = f"max goodput {bound.replace('_', ' ')} {ratio:.3g} of that without error, at {worst.rpartition(', ')[2]}"
    surely_below = bound != "at_least" and (ratio if high is None else high) < 1
    surely_above = bound != "at_most" and (ratio if low is None else low) > 1 + NO_EFFECT
    if surely_above:
        outcome = Outcome.CONTRADICTED
    else:
        outcome = Outcome.REPRODUCED if surely_below and ratio < 1 - NO_EFFECT else Outcome.WEAKER
    return Finding(claim, outcome, ratio, low, high, note.replace("  ", " "), simulated)


def long_operators(results: Results, claim: Claim) -> Finding:
    """Longest pause at operator level over the mean one: what a single operator of a very long input holds up."""
    rows = rows_of(claim, granularity_rows(results, str(claim.table)), str(claim.table))
    found = rows[(rows["setting"] == "operator") & rows["blocking_mean_ms"].notna()]
    if len(found) != 1:
        raise MissingInputError(f"{claim.table} has {len(found)} settings 'operator' with pauses, the claim needs one")
    operator = found.iloc[0]
    ours = float(operator["blocking_max_ms"]) / float(operator["blocking_mean_ms"])
    note = f"mean {operator['blocking_mean_ms']:.3g} ms, p99 {operator['blocking_p99_ms']:.3g} ms, "
    note += f"maximum {operator['blocking_max_ms']:.3g} ms"
    tiles = rows[(rows["setting"] == "tile") & rows["blocking_max_ms"].notna()]
    note += f"; maximum with tiles {tiles['blocking_max_ms'].iloc[0]:.3g} ms" if len(tiles) else ""
    outcome = Outcome.REPRODUCED if ours >= LONG_TAIL else Outcome.WEAKER
    return Finding(claim, outcome, ours, note=note, simulated=is_simulated(rows))


def _rounds(rows: pd.DataFrame) -> float | None:
    events = rows["requests_due"].sum() + rows["requests_ok"].sum()
    return float(rows["decisions"].sum() / events) if events else None


def _rounds_interval(rows: pd.DataFrame) -> Interval | None:
    """Of the same over seeds."""
    by_seed = rows.groupby("seed")[["decisions", "requests_due", "requests_ok"]].sum()
    events = (by_seed["requests_due"] + by_seed["requests_ok"]).tolist()
    return paired_ratio(by_seed["decisions"].tolist(), events, sum)[1]
