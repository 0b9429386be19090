import pytest

from engine.core.clock import NS_PER_MS
from engine.core.record import RequestRecord, Status
from harness.measurement.verdict import Thresholds, Verdict, judge
from tests.measurement.records import client, record

RECORDS = [record(f"r{i}") for i in range(40)]


def tripped(records: list[RequestRecord], **report: object) -> tuple[Verdict, list[str]]:
    judgement = judge(records, client(len(records), **report))
    return judgement.verdict, [check.name for check in judgement.tripped]


def test_a_clean_run_is_valid() -> None:
    assert tripped(RECORDS) == (Verdict.VALID, [])


@pytest.mark.parametrize(
    ("report", "name"),
    [
        ({"sender_lag_p99_ns": 11 * NS_PER_MS}, "sender_lag_p99"),
        ({"loop_lag_p99_ns": 51 * NS_PER_MS}, "loop_lag_p99"),
        ({"cpu_share": 0.95}, "client_cpu_share"),
        ({"sent_rps": 3.6}, "sent_share"),
    ],
)
def test_c21_a_slow_client_is_client_bound(report: dict[str, object], name: str) -> None:
    assert tripped(RECORDS, **report) == (Verdict.CLIENT_BOUND, [name])


def test_limits_themselves_pass() -> None:
    report = {"sender_lag_p99_ns": 10 * NS_PER_MS, "loop_lag_p99_ns": 50 * NS_PER_MS, "cpu_share": 0.9}
    assert tripped(RECORDS, **report, sent_rps=4 * 0.98) == (Verdict.VALID, [])


def test_thresholds_are_settings() -> None:
    strict = Thresholds(sender_lag_p99_ms=1)
    assert (
        judge(RECORDS, client(40, sender_lag_p99_ns=2 * NS_PER_MS), thresholds=strict).verdict is Verdict.CLIENT_BOUND
    )


def test_the_rate_of_a_handful_of_requests_is_not_judged() -> None:
    assert tripped(RECORDS[:5], sent_rps=0.3) == (Verdict.VALID, [])


@pytest.mark.parametrize("status", [s for s in Status if s not in (Status.OK, Status.UNSENT)])
def test_c25_no_success_at_all_is_a_failed_server(status: Status) -> None:
    """A server that hangs until every client leaves is as broken as one that answers with errors."""
    records = [record(f"r{i}", ttft_ms=None, status=status, reason="HTTP 500") for i in range(40)]
    assert tripped(records) == (Verdict.SERVER_FAILED, ["some_request_served"])
    assert "HTTP 500" in judge(records, client(40)).tripped[0].says


def test_overload_is_a_result_not_a_failure() -> None:
    """One request served late, 39 given up: attainment 0, and worth keeping."""
    records = [record("first", ttft_ms=900), *(record(f"r{i}", ttft_ms=None, status=Status.GAVE_UP) for i in range(39))]
    assert tripped(records) == (Verdict.VALID, [])


def test_half_refused_is_a_valid_measurement_of_misses() -> None:
    refused = [record(f"x{i}", ttft_ms=None, status=Status.REJECTED) for i in range(40)]
    assert tripped(RECORDS + refused) == (Verdict.VALID, [])


def test_a_dead_server_fails_the_run() -> None:
    judgement = judge(RECORDS, client(40), server_alive=False)
    assert (judgement.verdict, judgement.tripped[0].name) == (Verdict.SERVER_FAILED, "server_alive")


def test_c55_an_interrupted_run_is_incomplete() -> None:
    assert tripped(RECORDS, interrupted=True) == (Verdict.INCOMPLETE, ["not_interrupted"])


def test_c27_requests_unaccounted_for_are_incomplete() -> None:
    lost = judge(RECORDS[:39], client(40))
    twice = judge([*RECORDS[:39], RECORDS[0]], client(40))
    for judgement in (lost, twice):
        assert (judgement.verdict, judgement.tripped[0].name) == (Verdict.INCOMPLETE, "all_due_accounted")
    assert judge([], client(0)).verdict is Verdict.INCOMPLETE


def test_unsent_requests_are_incomplete_and_outrank_a_slow_client() -> None:
    records = [*RECORDS[:39], record("late", ttft_ms=None, status=Status.UNSENT)]
    assert tripped(records, cpu_share=1.0) == (Verdict.INCOMPLETE, ["all_sent", "client_cpu_share"])
