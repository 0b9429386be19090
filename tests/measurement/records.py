"""Hand-made facts for the tests of this folder."""

from engine.core.clock import NS_PER_MS
from engine.core.record import ClientReport, RequestRecord, Status
from harness.measurement.tables import PointFacts


def record(
    request_id: str = "r0",
    ttft_ms: int | None = 100,
    slo_ms: int | None = 250,
    task: str = "text",
    status: Status = Status.OK,
    due_ms: int = 1000,
    lag_ms: int = 0,
    max_tokens: int = 1,
    tbt_max_ms: int | None = None,
    tbt_slo_ms: int | None = None,
    prompt_tokens: int = 100,
    **other: object,
) -> RequestRecord:
    """A request whose first token came `ttft_ms` after it was due; sent `lag_ms` late."""
    return RequestRecord(
        request_id=request_id,
        task=task,
        prompt_tokens=prompt_tokens,
        max_tokens=max_tokens,
        ttft_slo_ns=None if slo_ms is None else slo_ms * NS_PER_MS,
        tbt_slo_ns=None if tbt_slo_ms is None else tbt_slo_ms * NS_PER_MS,
        due_at_ns=due_ms * NS_PER_MS,
        sent_at_ns=None if status is Status.UNSENT else (due_ms + lag_ms) * NS_PER_MS,
        first_token_at_ns=None if ttft_ms is None else (due_ms + ttft_ms) * NS_PER_MS,
        last_token_at_ns=None if ttft_ms is None else (due_ms + ttft_ms) * NS_PER_MS,
        output_tokens=0 if ttft_ms is None else 1,
        tbt_max_ns=None if tbt_max_ms is None else tbt_max_ms * NS_PER_MS,
        status=status,
        **other,  # type: ignore[arg-type]
    )


def client(due: int, **other: object) -> ClientReport:
    """A client that kept to its schedule of `due` requests over 10 s."""
    rate = due / 10
    values: dict[str, object] = {
        "requests_due": due, "requests_sent": due, "wall_ns": 10_000_000_000, "asked_rps": rate, "sent_rps": rate,
    }  # fmt: skip
    return ClientReport(**{**values, **other})  # type: ignore[arg-type]


def facts(**other: object) -> PointFacts:
    """The settings of a point."""
    values: dict[str, object] = {
        "experiment": "goodput_vs_rate", "point": "p0", "series": "A", "system": "flowprefill", "policy": "s_edf",
        "granularity": "operator", "chunk_tokens": None, "batching": "slo_aware", "backend": "engine",
        "source": "measured", "model": "cpu_demo", "device": "cpu", "workload": "sample", "protocol": "paper",
        "length_scale": 0.25, "slo_scale": 1.0, "slo_speed_factor": 2.0, "rate_scale": 1.0, "rate_rps": 2.0, "seed": 0,
    }  # fmt: skip
    return PointFacts(**{**values, **other})  # type: ignore[arg-type]
