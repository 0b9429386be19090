"""C4 and C5: how often is decided and what that costs or saves; what a wrong prediction and a long input cost."""

import pandas as pd

from figures.claim_findings import Finding, Outcome, is_flowprefill, is_simulated, rows_of
from figures.claims_file import Claim
from figures.conditions import is_valid
from figures.results import MissingInputError, Results

NEEDED = ("system", "granularity", "decisions", "requests_due", "requests_ok", "verdict", "source")


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
    return Finding(claim, outcome, ours, note=note, simulated=is_simulated(table))


def _rounds(rows: pd.DataFrame) -> float | None:
    events = rows["requests_due"].sum() + rows["requests_ok"].sum()
    return float(rows["decisions"].sum() / events) if events else None
