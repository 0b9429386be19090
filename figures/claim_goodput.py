"""C1 and what belongs to it: max goodput over DistServe's, and attainment at one rate and over SLO scales."""

import math

import pandas as pd

from figures.claim_findings import (
    Finding,
    Outcome,
    is_distserve,
    is_flowprefill,
    is_simulated,
    plain_series,
    rows_of,
)  # fmt: skip
from figures.claims_file import Claim
from figures.conditions import is_valid
from figures.max_goodput_rows import max_goodput_rows
from figures.results import MissingInputError, Results
from figures.seed_means import SeedMean, value_over_seeds

POINT_COLUMNS = (
    "series",
    "system",
    "granularity",
    "seed",
    "rate_scale",
    "slo_scale",
    "attainment",
    "verdict",
    "source",
)
PERCENT = 100.0


def goodput_ratio(results: Results, claim: Claim) -> Finding:
    """Max goodput of FlowPrefill at operator level over DistServe's, seeds paired."""
    name = f"{claim.table}_max_goodput"
    rows = rows_of(claim, max_goodput_rows(results, str(claim.table)), name)
    ours = _row(rows, plain_series(rows, is_flowprefill(rows), "FlowPrefill", name), name)
    partner = _row(rows, plain_series(rows, is_distserve(rows), "DistServe", name), name)
    if ours["reference"] != partner["series"]:
        raise MissingInputError(f"{name} has no ratio of {ours['series']} to {partner['series']}")
    simulated = is_simulated(rows)
    if pd.isna(ours["ratio"]):
        return Finding(claim, Outcome.NOT_RUN, note="the rates tried do not bound the ratio", simulated=simulated)
    ratio, bound = float(ours["ratio"]), str(ours["ratio_bound"])
    low, high = _number(ours["ratio_low"]), _number(ours["ratio_high"])
    notes = [f"ratio {bound.replace('_', ' ')} {ratio:.3g}, since a curve does not cross 90 %"] if bound else []
    tiles = rows[rows["system"].eq("flowprefill_tile") & rows["ratio"].notna()]
    notes += [f"at tile level {tiles['ratio'].iloc[0]:.3g}x"] if len(tiles) else []
    notes += ["one seed, no interval"] if low is None else []
    # a bound counts only on its own side, and the interval's end goes before the estimate where a direction is settled
    surely_at_least = low if low is not None else ratio if bound != "at_most" else 0.0
    surely_at_most = high if high is not None else ratio if bound != "at_least" else math.inf
    if bound != "at_most" and ratio >= claim.threshold * (1 - claim.tolerance):
        outcome = Outcome.REPRODUCED
    elif surely_at_most < 1:
        outcome = Outcome.CONTRADICTED
    else:
        outcome = Outcome.WEAKER
        notes += [] if surely_at_least > 1 else ["which is higher is not settled"]
    return Finding(claim, outcome, ratio, low, high, "; ".join(notes), simulated)


def attainment_at(results: Results, claim: Claim) -> Finding:
    """Attainment of FlowPrefill at the claim's rate, in percent. The paper's number is not known: only the direction
    (more than DistServe, seeds paired) is judged."""
    rows = _points(results, claim)
    ours, partner = _by_seed(rows, claim)
    lead = _lead(ours, partner)
    mean = value_over_seeds((PERCENT * ours).tolist())
    note = (
        f"DistServe {PERCENT * partner.mean():.3g} %, FlowPrefill {_text(lead)} points above it; the paper's number is "
        "not known here, only the direction is judged"
    )
    low, high = (None, None) if math.isnan(mean.low) else (mean.low, mean.high)
    return Finding(claim, _direction([lead]), mean.mean, low, high, note, is_simulated(rows))


def attainment_over_slo_scales(results: Results, claim: Claim) -> Finding:
    """The same at every SLO scale that was run; ours is the smallest lead over DistServe, in points."""
    rows = _points(results, claim)
    leads: dict[float, SeedMean] = {}
    notes = []
    for scale, here in rows.groupby("slo_scale", sort=True):
        ours, partner = _by_seed(here, claim)
        leads[float(str(scale))] = _lead(ours, partner)
        notes.append(f"{scale:g}: {PERCENT * ours.mean():.3g} against {PERCENT * partner.mean():.3g} %")
    least = min(leads.values(), key=lambda lead: lead.mean)
    low, high = (None, None) if math.isnan(least.low) else (least.low, least.high)
    note = f"FlowPrefill against DistServe at SLO scale {'; '.join(notes)}; the paper's numbers are not known here"
    return Finding(claim, _direction(list(leads.values())), least.mean, low, high, note, is_simulated(rows))


def _points(results: Results, claim: Claim) -> pd.DataFrame:
    rows = rows_of(claim, results.table(str(claim.table), POINT_COLUMNS), str(claim.table))
    return rows[is_valid(rows["verdict"]) & rows["attainment"].notna()]


def _by_seed(rows: pd.DataFrame, claim: Claim) -> tuple["pd.Series[float]", "pd.Series[float]"]:
    """Attainment by seed of FlowPrefill and of DistServe, at one rate and SLO scale, for the seeds that both have."""
    found = []
    for chosen, name in ((is_flowprefill(rows), "FlowPrefill"), (is_distserve(rows), "DistServe")):
        series = rows[rows["series"] == plain_series(rows, chosen, name, str(claim.table))]
        if series["rate_scale"].nunique() != 1 or series["seed"].duplicated().any():
            raise MissingInputError(f"{claim.table} has several points of {name} for one seed: the claim needs one")
        found.append(series.set_index("seed")["attainment"].astype(float))
    ours, partner = found[0].align(found[1], join="inner")
    if ours.empty:
        raise MissingInputError(f"{claim.table} has no seed that FlowPrefill and DistServe share")
    return ours.sort_index(), partner.sort_index()


def _lead(ours: "pd.Series[float]", partner: "pd.Series[float]") -> SeedMean:
    """Mean of the paired differences, in points."""
    return value_over_seeds((PERCENT * (ours - partner)).tolist())


def _direction(leads: list[SeedMean]) -> Outcome:
    """Reproduced where every lead is above 0 with its interval, contradicted where one lies below 0 with it."""
    if any((lead.mean if math.isnan(lead.high) else lead.high) < 0 for lead in leads):
        return Outcome.CONTRADICTED
    settled = all((lead.mean if math.isnan(lead.low) else lead.low) > 0 for lead in leads)
    return Outcome.REPRODUCED if settled else Outcome.WEAKER


def _text(value: SeedMean) -> str:
    return f"{value.mean:.3g}" + ("" if math.isnan(value.low) else f" [{value.low:.3g}, {value.high:.3g}]")


def _row(rows: pd.DataFrame, series: str, table: str) -> pd.Series:
    found = rows[rows["series"] == series]
    if len(found) != 1:
        raise MissingInputError(f"{table} has {len(found)} rows of {series}, the claim needs one")
    return found.iloc[0]


def _number(value: object) -> float | None:
    return None if value is None or pd.isna(value) else float(str(value))  # type: ignore[call-overload]
