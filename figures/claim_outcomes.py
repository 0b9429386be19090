"""Each claim held against the results: reproduced, weaker, contradicted or not run. Pure functions of tables."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from figures.claim_findings import Finding, Outcome
from figures.claim_goodput import attainment_at, attainment_over_slo_scales, goodput_ratio
from figures.claim_granularity import blocking_ratio, chunk_trade_off, chunk_trade_off_under_load, operator_blocking
from figures.claim_scheduling import event_rounds, long_operators, prediction_error, rounds_per_event
from figures.claims_file import Claim, ClaimsFileError
from figures.results import MissingInputError, Results

JUDGES: Mapping[str, Callable[[Results, Claim], Finding]] = MappingProxyType(
    {
        "goodput_ratio": goodput_ratio,
        "attainment_at": attainment_at,
        "attainment_over_slo_scales": attainment_over_slo_scales,
        "blocking_ratio": blocking_ratio,
        "operator_blocking": operator_blocking,
        "chunk_trade_off": chunk_trade_off,
        "chunk_trade_off_under_load": chunk_trade_off_under_load,
        "rounds_per_event": rounds_per_event,
        "event_rounds": event_rounds,
        "prediction_error": prediction_error,
        "long_operators": long_operators,
    }
)
"""The judges that claims.yaml names."""


def judge_claims(results: Results, claims: tuple[Claim, ...]) -> tuple[Finding, ...]:
    """A finding per claim, in their order. Raises ClaimsFileError for a judge that is not there."""
    return tuple(judge_claim(results, claim) for claim in claims)


def judge_claim(results: Results, claim: Claim) -> Finding:
    """One claim's finding. A table that is not there means not run; one that lost what the claim needs, vanished."""
    if claim.table is None or claim.judge is None:
        return Finding(claim, Outcome.NOT_RUN, note=claim.protocol)
    if claim.judge not in JUDGES:
        raise ClaimsFileError(f"claim {claim.id} names the judge {claim.judge!r}; there are {', '.join(JUDGES)}")
    if not results.has(claim.table):
        return Finding(claim, Outcome.NOT_RUN, note=f"no table of {claim.table} is there")
    try:
        return JUDGES[claim.judge](results, claim)
    except MissingInputError as error:
        return Finding(claim, Outcome.NOT_RUN, note=str(error), vanished=True)
