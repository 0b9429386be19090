"""Time between tokens: of each request that got at least two, its mean gap and its largest one."""

from collections.abc import Sequence

from engine.core.clock import NS_PER_S
from engine.core.record import RequestRecord, Status
from harness.measurement.latency import summarize


def mean_gap_ns(record: RequestRecord) -> float | None:
    """From the first token to the last, over the gaps between; None for fewer than two tokens."""
    first, last, tokens = record.first_token_at_ns, record.last_token_at_ns, record.output_tokens
    if first is None or last is None or tokens < 2:
        return None
    return (last - first) / (tokens - 1)


def met_tbt(record: RequestRecord) -> bool:
    """Whether the request ended well and no gap was longer than its TBT SLO."""
    if record.status is not Status.OK or record.tbt_slo_ns is None:
        return False
    return record.tbt_max_ns is None or record.tbt_max_ns <= record.tbt_slo_ns


def tbt_cells(records: Sequence[RequestRecord]) -> dict[str, object]:
    """The columns of a point whose requests ask for more than one token; none of any other point.

    tbt_attainment: over every due request with a TBT SLO that asked for more than one token, however it ended.
    """
    generating = [record for record in records if record.max_tokens > 1]
    if not generating:
        return {}
    means = summarize([gap / NS_PER_S for gap in map(mean_gap_ns, generating) if gap is not None])
    largest = summarize([record.tbt_max_ns / NS_PER_S for record in generating if record.tbt_max_ns is not None])
    bound = [record for record in generating if record.tbt_slo_ns is not None]
    return {
        "tbt_n": means.n,
        "tbt_mean_p50_s": means.p50,
        "tbt_mean_p99_s": means.p99,
        "tbt_max_p50_s": largest.p50,
        "tbt_max_p99_s": largest.p99,
        "tbt_attainment": sum(map(met_tbt, bound)) / len(bound) if bound else None,
    }
