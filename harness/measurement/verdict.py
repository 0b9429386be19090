"""Whether a run measured what it was to measure. Judges the measurement, never how well the server did."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from engine.core.clock import NS_PER_MS
from engine.core.record import ClientReport, EngineReport, RequestRecord, Status


class Verdict(StrEnum):
    """What a run is worth. Only VALID runs enter a goodput or a claim."""

    VALID = "VALID"
    CLIENT_BOUND = "CLIENT-BOUND"  # the load generator was too slow: the latencies are partly its own
    SERVER_FAILED = "SERVER-FAILED"  # the server died, or not one request succeeded: a broken set-up, not an overload
    INCOMPLETE = "INCOMPLETE"  # stopped early, or requests unaccounted for


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Limits of the client's checks.

    sender_lag_p99_ms: most the client may send late at the 99th percentile; TTFT counts from the due instant.
    loop_lag_p99_ms: most its event loop may wake late at the 99th percentile.
    client_cpu_share: most of one core that the client's process may use.
    sent_share: least ratio of the rate sent to the rate asked.
    sent_share_min_requests: with fewer requests the rate sent says nothing and is not checked.
    other_length_share: most replies with a token that may have another number of tokens than asked.
    """

    sender_lag_p99_ms: float = 10.0
    loop_lag_p99_ms: float = 50.0
    client_cpu_share: float = 0.90
    sent_share: float = 0.98
    sent_share_min_requests: int = 20
    other_length_share: float = 0.05


@dataclass(frozen=True, slots=True)
class Check:
    """One named check. says: the sentence for a person, with the value found and the limit."""

    name: str
    passed: bool
    verdict: Verdict  # what the run is when the check trips
    says: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict and every check behind it."""

    verdict: Verdict
    checks: tuple[Check, ...]

    @property
    def tripped(self) -> tuple[Check, ...]:
        """The checks that did not pass."""
        return tuple(check for check in self.checks if not check.passed)


def judge(
    records: Sequence[RequestRecord],
    client: ClientReport,
    server_alive: bool = True,
    thresholds: Thresholds | None = None,
    *,
    engine: EngineReport | None = None,
    server_at_rest: bool | None = None,
) -> Judgement:
    """Judge one run. Of several tripped checks the worst decides: INCOMPLETE, then SERVER-FAILED, then CLIENT-BOUND.

    server_alive: whether the server still answered after the run.
    engine: what the engine counted in the run; None = it tells nothing.
    server_at_rest: whether KV blocks and running requests were back at their baseline after the last client had
        left; None = not known.
    """
    limits = Thresholds() if thresholds is None else thresholds
    checks = (
        *_completeness(records, client),
        *_apart(client, engine),
        *_server(records, server_alive, limits),
        *_rest(server_at_rest),
        *_client(client, limits),
    )
    for verdict in (Verdict.INCOMPLETE, Verdict.SERVER_FAILED, Verdict.CLIENT_BOUND):
        if any(not check.passed and check.verdict is verdict for check in checks):
            return Judgement(verdict, checks)
    return Judgement(Verdict.VALID, checks)


def _completeness(records: Sequence[RequestRecord], client: ClientReport) -> list[Check]:
    unsent = sum(record.status is Status.UNSENT for record in records)
    distinct = len({record.request_id for record in records})
    accounted = distinct == len(records) == client.requests_due > 0
    return [
        Check(
            "not_interrupted",
            not client.interrupted,
            Verdict.INCOMPLETE,
            "the user stopped the run" if client.interrupted else "the run came to its end",
        ),
        Check(
            "all_due_accounted",
            accounted,
            Verdict.INCOMPLETE,
            f"{client.requests_due} requests were due, {len(records)} records exist, {distinct} of them distinct",
        ),
        Check("all_sent", unsent == 0, Verdict.INCOMPLETE, f"{unsent} of {len(records)} due requests were never sent"),
    ]


def _apart(client: ClientReport, engine: EngineReport | None) -> list[Check]:
    """The engine has seen this run's requests and no others: no warm-up, no second client."""
    if engine is None:
        return []
    seen = engine.completed_requests + engine.failed_requests + engine.cancelled_requests + engine.rejected
    return [
        Check(
            "warm_up_apart",
            seen <= client.requests_sent,
            Verdict.INCOMPLETE,
            f"the engine ended {seen} requests, {client.requests_sent} were sent in this run",
        )
    ]


def _rest(at_rest: bool | None) -> list[Check]:
    if at_rest is None:
        return []
    says = "KV blocks and running requests were back at the baseline" if at_rest else "the server did not come to rest"
    return [Check("server_at_rest", at_rest, Verdict.SERVER_FAILED, f"{says} after the last client had left")]


def _server(records: Sequence[RequestRecord], alive: bool, limits: Thresholds) -> list[Check]:
    """Overload is a result: its first requests still succeed, if late. No success at all says nothing of capacity."""
    ended = (Status.OK, Status.TRUNCATED)
    replies = [record for record in records if record.status in ended and record.first_token_at_ns is not None]
    other = sum(record.output_tokens != record.max_tokens for record in replies)
    ok = sum(record.status is Status.OK for record in records)
    reasons = sorted({record.reason for record in records if record.reason})
    first = f"; for instance: {reasons[0]}" if reasons else ""
    return [
        Check(
            "server_alive",
            alive,
            Verdict.SERVER_FAILED,
            "the server answered after the run" if alive else "the server no longer answered after the run",
        ),
        Check(
            "some_request_served",
            ok > 0 or not records,
            Verdict.SERVER_FAILED,
            f"{ok} of {len(records)} requests succeeded{first if not ok else ''}",
        ),
        Check(
            "output_lengths",
            other <= limits.other_length_share * len(replies),
            Verdict.SERVER_FAILED,
            f"{other} of {len(replies)} replies have another number of tokens than asked "
            f"(at most {limits.other_length_share:.0%})",
        ),
    ]


def _client(client: ClientReport, limits: Thresholds) -> list[Check]:
    lag_ms = client.sender_lag_p99_ns / NS_PER_MS
    loop_ms = client.loop_lag_p99_ns / NS_PER_MS
    checks = [
        _at_most("sender_lag_p99", lag_ms, limits.sender_lag_p99_ms, "ms late sends at p99"),
        _at_most("loop_lag_p99", loop_ms, limits.loop_lag_p99_ms, "ms late wake-ups of the client's loop at p99"),
        _at_most("client_cpu_share", client.cpu_share, limits.client_cpu_share, "of one core used by the client"),
        _at_most("open_files", client.open_files_failures, 0, "sends failed for want of open files"),
    ]
    if client.asked_rps > 0 and client.requests_due >= limits.sent_share_min_requests:
        share = client.sent_rps / client.asked_rps
        says = f"{share:.3f} of the rate asked was sent (at least {limits.sent_share:g})"
        checks.append(Check("sent_share", share >= limits.sent_share, Verdict.CLIENT_BOUND, says))
    return checks


def _at_most(name: str, value: float, limit: float, words: str) -> Check:
    return Check(name, value <= limit, Verdict.CLIENT_BOUND, f"{value:.3g} {words} (at most {limit:g})")
