"""Each claim held against the results: reproduced, weaker, contradicted or not run. Pure functions of tables."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

import pandas as pd

from figures.claims_file import Claim
from figures.conditions import is_valid
from figures.granularity_rows import granularity_rows
from figures.max_goodput_rows import max_goodput_rows
from figures.results import MissingInputError, Results

PAPER_PROTOCOL = "paper"


class Outcome(StrEnum):
    """What became of a claim here."""

    REPRODUCED = "reproduced"
    WEAKER = "weaker"  # the same direction, or no direction that the interval settles
    CONTRADICTED = "contradicted"
    NOT_RUN = "not_run"


@dataclass(frozen=True, slots=True)
class Finding:
    """A claim's outcome. ours, low, high: the measured value and its interval, None where there is none.

    simulated: some of the data was. vanished: the table is there, but what the claim needs of it is not.
    """

    claim: Claim
    outcome: Outcome
    ours: float | None = None
    low: float | None = None
    high: float | None = None
    note: str = ""
    simulated: bool = False
    vanished: bool = False


def judge_claims(results: Results, claims: tuple[Claim, ...]) -> tuple[Finding, ...]:
    """A finding per claim, in their order."""
    return tuple(judge_claim(results, claim) for claim in claims)


def judge_claim(results: Results, claim: Claim) -> Finding:
    """One claim's finding. A table that is not there means not run; one that lost what the claim needs, vanished."""
    if claim.table is None or claim.id not in JUDGES:
        return Finding(claim, Outcome.NOT_RUN, note=claim.protocol)
    if not results.has(claim.table):
        return Finding(claim, Outcome.NOT_RUN, note=f"no table of {claim.table} is there")
    try:
        return JUDGES[claim.id](results, claim)
    except MissingInputError as error:
        return Finding(claim, Outcome.NOT_RUN, note=str(error), vanished=True)


def goodput_ratio(results: Results, claim: Claim) -> Finding:
    """C1: max goodput of FlowPrefill at operator level over DistServe's, seeds paired, in the paper's protocol."""
    rows = max_goodput_rows(results, str(claim.table))
    if PAPER_PROTOCOL in set(rows["protocol"]):
        rows = rows[rows["protocol"].eq(PAPER_PROTOCOL)]
    ours = _row(rows, rows["system"].eq("flowprefill") & rows["granularity"].eq("operator"), claim, "FlowPrefill")
    partner = _row(rows, rows["system"].eq("distserve"), claim, "DistServe")
    if ours["reference"] != partner["series"]:
        raise MissingInputError(f"{claim.table}_max_goodput has no ratio of {ours['series']} to {partner['series']}")
    simulated = _simulated(rows)
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


def blocking_ratio(results: Results, claim: Claim) -> Finding:
    """C2: mean blocking at layer level over operator level, beside the ratio that operator times predict."""
    rows = granularity_rows(results, str(claim.table))
    layer, operator = _setting(rows, "layer"), _setting(rows, "operator")
    ours = float(layer["blocking_mean_ms"]) / float(operator["blocking_mean_ms"])
    predicted = float(layer["blocking_expected_mean_ms"]) / float(operator["blocking_expected_mean_ms"])
    note = f"operator level {operator['blocking_mean_ms']:.3g} ms, layer level {layer['blocking_mean_ms']:.3g} ms"
    if not math.isnan(predicted):
        note += f"; predicted ratio {predicted:.3g}, measured {ours / predicted:.2g} of it"
    if ours >= claim.threshold * (1 - claim.tolerance):
        outcome = Outcome.REPRODUCED
    else:
        outcome = Outcome.WEAKER if ours > 1 else Outcome.CONTRADICTED
    return Finding(claim, outcome, ours, note=note, simulated=_simulated(rows))


def chunk_trade_off(results: Results, claim: Claim) -> Finding:
    """C3: three parts. Each holds, is flat (within the tolerance) or is reversed; one reversed part contradicts."""
    rows = granularity_rows(results, str(claim.table))
    chunks = rows[rows["chunk_tokens"].notna()].sort_values("chunk_tokens")
    if len(chunks) < 2:
        raise MissingInputError("granularity has fewer than two chunk sizes")
    small, large, operator = chunks.iloc[0], chunks.iloc[-1], _setting(rows, "operator")
    parts = {
        f"{small['setting']} blocks less than {large['setting']}": _share(large, small, "blocking_mean_ms"),
        f"{small['setting']} is slower than {large['setting']}": _share(large, small, "prefill_tokens_per_s"),
        f"operator level is as fast as {large['setting']}": _share(operator, large, "prefill_tokens_per_s"),
        f"operator level blocks less than {large['setting']}": _share(large, operator, "blocking_mean_ms"),
    }
    not_slower = f"operator level is as fast as {large['setting']}"
    states = {name: _state(share, claim.tolerance, equal_is_enough=name == not_slower) for name, share in parts.items()}
    note = "; ".join(f"{name}: {states[name]} (ratio {share:.3g})" for name, share in parts.items())
    if "reversed" in states.values():
        outcome = Outcome.CONTRADICTED
    else:
        outcome = Outcome.WEAKER if "flat" in states.values() else Outcome.REPRODUCED
    return Finding(claim, outcome, note=note, simulated=_simulated(rows))


def rounds_per_event(results: Results, claim: Claim) -> Finding:
    """C4: scheduling rounds of FlowPrefill over arrivals and completions; weaker while still below chunked prefill."""
    needed = ("system", "granularity", "decisions", "requests_due", "requests_ok", "verdict", "source")
    table = results.table(str(claim.table), needed)
    table = table[is_valid(table["verdict"]) & table["decisions"].notna()]
    ours = _rounds(table[table["system"].eq("flowprefill") & table["granularity"].eq("operator")])
    if ours is None:
        raise MissingInputError(f"{claim.table} has no valid point of FlowPrefill with its decisions")
    chunked = _rounds(table[table["system"].eq("chunked_prefill")])
    note = "chunked prefill was not run" if chunked is None else f"chunked prefill {chunked:.3g}"
    if ours <= claim.threshold * (1 + claim.tolerance):
        outcome = Outcome.REPRODUCED
    else:
        outcome = Outcome.WEAKER if chunked is not None and ours < chunked else Outcome.CONTRADICTED
    return Finding(claim, outcome, ours, note=note, simulated=_simulated(table))


JUDGES: Mapping[str, Callable[[Results, Claim], Finding]] = MappingProxyType(
    {"C1": goodput_ratio, "C2": blocking_ratio, "C3": chunk_trade_off, "C4": rounds_per_event}
)


def _state(share: float, tolerance: float, equal_is_enough: bool) -> str:
    if share < 1 - tolerance:
        return "reversed"
    return "holds" if equal_is_enough or share > 1 + tolerance else "flat"


def _share(above: pd.Series, below: pd.Series, column: str) -> float:
    return float(above[column]) / float(below[column])


def _rounds(rows: pd.DataFrame) -> float | None:
    events = rows["requests_due"].sum() + rows["requests_ok"].sum()
    return float(rows["decisions"].sum() / events) if events else None


def _row(rows: pd.DataFrame, chosen: pd.Series, claim: Claim, name: str) -> pd.Series:
    found = rows[chosen]
    if len(found) > 1:  # a variant says in its name what it changed: the plain one has the shortest
        found = found[found["series"].str.len() == found["series"].str.len().min()]
    if len(found) != 1:
        raise MissingInputError(f"{claim.table}_max_goodput has {len(found)} series of {name}, the claim needs one")
    return found.iloc[0]


def _setting(rows: pd.DataFrame, setting: str) -> pd.Series:
    found = rows[(rows["setting"] == setting) & rows["blocking_mean_ms"].notna()]
    if len(found) != 1:
        raise MissingInputError(f"granularity has {len(found)} measured settings {setting!r}, the claim needs one")
    return found.iloc[0]


def _number(value: object) -> float | None:
    return None if value is None or pd.isna(value) else float(str(value))  # type: ignore[call-overload]


def _simulated(rows: pd.DataFrame) -> bool:
    return bool(rows["source"].astype(str).str.contains("simulated").any())
