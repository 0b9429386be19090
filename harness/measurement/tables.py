"""The tidy table: one row per point, units in the names, one value per cell, empty where nothing was measured."""

import re
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from engine.core.clock import NS_PER_MS, NS_PER_S
from engine.core.record import ClientReport, EngineReport, RequestRecord, Status
from harness.measurement.attainment import AttainmentReport, attainment, counted
from harness.measurement.blocking import blocking_ms
from harness.measurement.bound import Bound
from harness.measurement.latency import enough_for_quantile, measured, summarize, ttft_from_due_ns, ttft_from_send_ns
from harness.measurement.table_file import Row, TableError, merge_rows, write_table
from harness.measurement.tbt import tbt_cells
from harness.measurement.uncertainty import wilson
from harness.measurement.verdict import Judgement


@dataclass(frozen=True, slots=True)
class PointFacts:
    """What a point was: the settings columns of its row.

    point: the hash that identifies it. series: the label a figure draws.
    chunk_tokens: as set, in trace tokens; None without chunking.
    backend: engine | simulator | server. source: measured | simulated.
    rate_scale: multiple of the trace's own rate. rate_rps: requests per second asked in this machine's
        real time, after the time stretch.
    slo_speed_factor: how much SLOs and arrival gaps were stretched for this machine.
    """

    experiment: str
    point: str
    series: str
    system: str
    policy: str
    granularity: str
    chunk_tokens: int | None
    batching: str
    backend: str
    source: str
    model: str
    device: str
    workload: str
    protocol: str
    length_scale: float
    slo_scale: float
    slo_speed_factor: float
    rate_scale: float
    rate_rps: float
    seed: int


POINT_COLUMNS = (
    *PointFacts.__dataclass_fields__,
    "requests_due",
    *(f"requests_{status.value}" for status in Status),
    "attainment_n",
    "attainment",
    "attainment_low",
    "attainment_high",
    "attainment_worst_class",
    "worst_class",
    "attainment_joint",
    "ttft_n",
    "ttft_p50_s",
    "ttft_p99_s",
    "ttft_p99_few_samples",
    "ttft_from_send_p99_s",
    "blocking_n",
    "blocking_mean_ms",
    "blocking_p50_ms",
    "blocking_p99_ms",
    "blocking_max_ms",
    "preemptions",
    "decisions",
    "other_decisions",
    "scheduling_us_per_decision",
    "prefill_tokens_per_s",
    "executor_busy_share",
    "cached_tokens_share",
    "prompt_tokens_mismatched",
    "sender_lag_p99_ms",
    "client_cpu_share",
    "verdict",
    "verdict_reason",
)
"""Columns every point table has. Those of TBT (where outputs were generated), attainment_<class> and n_<class> follow,
and the bound where one was solved."""

BOUND_TOLERANCE = 1e-6
"""Of the solver."""


def point_row(
    facts: PointFacts,
    records: Sequence[RequestRecord],
    engine: EngineReport | None,
    client: ClientReport,
    judgement: Judgement,
    discard_first_s: float = 0.0,
) -> OrderedDict[str, object]:
    """One row. engine: None when the server gives no report (its columns stay empty).

    discard_first_s: requests due before are due and served, and in no attainment, time or token gap.
    """
    sent, records = records, counted(records, discard_first_s)
    report = attainment(records)
    row: OrderedDict[str, object] = OrderedDict(asdict(facts))
    row.update(_counts(sent))
    row.update(_attainment_cells(report))
    row.update(_latency_cells(records))
    row.update(_engine_cells(engine, client))
    row.update(
        cached_tokens_share=_cached_share(sent),
        prompt_tokens_mismatched=sum(r.server_prompt_tokens not in (None, r.prompt_tokens) for r in sent),
        sender_lag_p99_ms=client.sender_lag_p99_ns / NS_PER_MS,
        client_cpu_share=client.cpu_share,
        verdict=judgement.verdict.value,
        verdict_reason=judgement.tripped[0].name if judgement.tripped else None,
    )
    row.update(tbt_cells(records))
    row.update(_class_cells(report))
    return row


def with_bound(row: Row, bound: Bound) -> dict[str, object]:
    """A row of a simulated point beside the clairvoyant bound of its requests.

    Raises TableError for an attainment above the bound: one of the two is wrong.
    """
    share, most = row.get("attainment"), bound.overall
    cells: dict[str, object] = {"bound_attainment": most, "bound_attainment_worst_class": bound.worst_class}
    if isinstance(share, int | float) and most is not None:
        if share > most + BOUND_TOLERANCE:
            raise TableError(f"point {row.get('point')}: attainment {share} is above its bound {most}")
        cells["fraction_of_bound"] = min(1.0, share / most) if most > 0 else None
    return {**row, **cells}


def write_points(path: Path, rows: Iterable[Row]) -> None:
    """Write a point table whole."""
    write_table(path, rows, POINT_COLUMNS)


def merge_points(path: Path, rows: Iterable[Row]) -> None:
    """Add rows to a point table, replacing those of the same point."""
    merge_rows(path, rows, POINT_COLUMNS)


def class_column(prefix: str, name: str) -> str:
    """Column of a class: attainment_<class> or n_<class>; a request without class counts as `unnamed`."""
    return f"{prefix}_{re.sub(r'[^a-z0-9]+', '_', name.lower()).strip('_') or 'unnamed'}"


def _counts(records: Sequence[RequestRecord]) -> dict[str, object]:
    """Every way to end, one column each; together they are all the due requests."""
    ended = Counter(record.status for record in records)
    return {"requests_due": len(records), **{f"requests_{status.value}": ended[status] for status in Status}}


def _attainment_cells(report: AttainmentReport) -> dict[str, object]:
    ends = wilson(report.overall.met, report.overall.n)
    return {
        "attainment_n": report.overall.n,
        "attainment": report.overall.share,
        "attainment_low": None if ends is None else ends.low,
        "attainment_high": None if ends is None else ends.high,
        "attainment_worst_class": report.worst.share,
        "worst_class": report.worst_class,
        "attainment_joint": report.joint.share,
    }


def _class_cells(report: AttainmentReport) -> dict[str, object]:
    cells: dict[str, object] = {}
    for name, found in report.by_class.items():
        column = class_column("attainment", name)
        if column in cells or column in POINT_COLUMNS:
            raise TableError(f"class {name!r} would share the column {column} with another; rename the class")
        cells[column] = found.share
        cells[class_column("n", name)] = found.n
    return cells


def _latency_cells(records: Sequence[RequestRecord]) -> dict[str, object]:
    """Of the requests that got a first token, however they ended: the others have no TTFT, only a miss."""
    from_due = summarize([ns / NS_PER_S for ns in measured(map(ttft_from_due_ns, records))])
    from_send = summarize([ns / NS_PER_S for ns in measured(map(ttft_from_send_ns, records))])
    return {
        "ttft_n": from_due.n,
        "ttft_p50_s": from_due.p50,
        "ttft_p99_s": from_due.p99,
        "ttft_p99_few_samples": not enough_for_quantile(from_due.n, 0.99),
        "ttft_from_send_p99_s": from_send.p99,
    }


def _engine_cells(engine: EngineReport | None, client: ClientReport) -> dict[str, object]:
    if engine is None:
        return {}
    blocking = blocking_ms(engine.blocking_ns)
    rounds = engine.decisions + engine.other_decisions
    return {
        "blocking_n": blocking.n,
        "blocking_mean_ms": blocking.mean,
        "blocking_p50_ms": blocking.p50,
        "blocking_p99_ms": blocking.p99,
        "blocking_max_ms": blocking.max,
        "preemptions": engine.preemptions,
        "decisions": engine.decisions,
        "other_decisions": engine.other_decisions,
        "scheduling_us_per_decision": engine.scheduling_ns / 1000 / rounds if rounds else None,
        "prefill_tokens_per_s": engine.prefill_tokens * NS_PER_S / engine.executed_ns if engine.executed_ns else None,
        "executor_busy_share": engine.executed_ns / client.wall_ns if client.wall_ns else None,
    }


def _cached_share(records: Sequence[RequestRecord]) -> float | None:
    """Share of prompt tokens the server took from its prefix cache; None when it never said."""
    told = [record for record in records if record.cached_tokens is not None]
    tokens = sum(record.prompt_tokens for record in told)
    return sum(record.cached_tokens or 0 for record in told) / tokens if tokens else None
