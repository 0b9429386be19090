"""Facts about one request of one run: the same schema for every backend."""

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """How a due request ended. Everything but OK is a miss."""

    OK = "ok"
    FAILED = "failed"  # an error, or a reply without a token
    REJECTED = "rejected"  # refused by the server (429, 503)
    TIMED_OUT = "timed_out"  # the client's explicit time-out
    GAVE_UP = "gave_up"  # the client left at k x SLO, as a user would
    TRUNCATED = "truncated"  # the stream closed before the tokens asked for
    UNFINISHED = "unfinished"  # sent, not over at the end of the drain
    UNSENT = "unsent"  # due, never sent


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """What the client saw. Instants are nanoseconds after the run's start; None = did not happen.

    due_at_ns: when the request was to be sent; TTFT counts from here.
    prompt_tokens: tokens sent. server_prompt_tokens: what the server says it got.
    output_tokens: tokens received; output_estimated: counted from events, since no usage came.
    tbt_max_ns: largest gap between two reads that carried tokens.
    reason: why, when status is not OK.
    """

    request_id: str
    task: str
    prompt_tokens: int
    max_tokens: int
    ttft_slo_ns: int | None
    tbt_slo_ns: int | None
    due_at_ns: int
    sent_at_ns: int | None = None
    first_token_at_ns: int | None = None
    last_token_at_ns: int | None = None
    output_tokens: int = 0
    output_estimated: bool = False
    tbt_max_ns: int | None = None
    server_prompt_tokens: int | None = None
    cached_tokens: int | None = None
    status: Status = Status.UNSENT
    reason: str = ""


@dataclass(frozen=True, slots=True)
class EngineReport:
    """What an engine counted since the report was last reset. Durations in nanoseconds.

    decisions: scheduling rounds after arrivals and completions (the paper's); other_decisions: after
        a pause that took effect, a cancellation, released KV, a failure.
    preemptions: pauses that took effect on work that somebody still waits for.
    blocking_ns: one sample per pause asked for more urgent work, from the decision to Preempted, Completion or
        Failed. Stopping work whose clients have left is no preemption and gives none.
    arrival_to_decision_ns: one sample per arrival: from the instant the engine had it to its first decision.
    executed_ns: time the executor was busy with tasks.
    kv_sent, kv_received: requests whose KV left for another instance, or came from one.
    predictions_clamped: estimates of the predictor that made no sense and were repaired.
    """

    decisions: int = 0
    other_decisions: int = 0
    preemptions: int = 0
    rejected: int = 0
    completed_requests: int = 0
    failed_requests: int = 0
    cancelled_requests: int = 0
    prefill_tokens: int = 0
    decode_tokens: int = 0
    executed_ns: int = 0
    scheduling_ns: int = 0
    blocking_ns: tuple[int, ...] = ()
    arrival_to_decision_ns: tuple[int, ...] = ()
    predictions_clamped: int = 0
    kv_sent: int = 0
    kv_received: int = 0


@dataclass(frozen=True, slots=True)
class ClientReport:
    """How the load generator itself fared in one run; the verdict is judged from it.

    asked_rps, sent_rps: requests over the span of the schedule, as planned and as sent; 0 for one request.
    sender_lag_*_ns: sent - due, over the requests sent.
    loop_lag_*_ns: how late the client's event loop woke from timed sleeps.
    cpu_share: CPU seconds of the client's process over wall seconds of the run.
    open_files_failures: sends that failed because this process had no open file left.
    interrupted: the user stopped the run.
    """

    requests_due: int
    requests_sent: int
    wall_ns: int
    asked_rps: float
    sent_rps: float
    sender_lag_p50_ns: int = 0
    sender_lag_p99_ns: int = 0
    sender_lag_max_ns: int = 0
    loop_lag_p99_ns: int = 0
    loop_lag_max_ns: int = 0
    cpu_share: float = 0.0
    open_files_limit: int = 0
    open_files_failures: int = 0
    interrupted: bool = False
