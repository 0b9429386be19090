import dataclasses

import pytest

from engine.core.clock import NS_PER_MS
from engine.core.record import EngineReport, RequestRecord, Status
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
        ({"open_files_failures": 1}, "open_files"),
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


def replies(of_other_length: int, status: Status = Status.OK, tokens: int = 7) -> list[RequestRecord]:
    asked = [record(f"r{i}", max_tokens=8) for i in range(40)]
    return [
        dataclasses.replace(
            one, output_tokens=tokens if i < of_other_length else 8, status=status if i < of_other_length else Status.OK
        )
        for i, one in enumerate(asked)
    ]


def test_replies_of_another_length_than_asked_are_a_failed_server() -> None:
    assert tripped(replies(2)) == (Verdict.VALID, [])  # 5 %
    assert tripped(replies(3)) == (Verdict.SERVER_FAILED, ["output_lengths"])
    assert tripped(replies(3, Status.TRUNCATED)) == (Verdict.SERVER_FAILED, ["output_lengths"])
    assert tripped(replies(3, tokens=9)) == (Verdict.SERVER_FAILED, ["output_lengths"])


def test_requests_of_a_warm_up_or_of_others_make_a_run_incomplete() -> None:
    report = EngineReport(completed_requests=37, cancelled_requests=2, rejected=1)
    assert judge(RECORDS, client(40), engine=report).verdict is Verdict.VALID
    warm = judge(RECORDS, client(40), engine=dataclasses.replace(report, completed_requests=38))
    assert (warm.verdict, [check.name for check in warm.tripped]) == (Verdict.INCOMPLETE, ["warm_up_apart"])
    assert "ended 41 requests, 40 were sent" in warm.tripped[0].says


def test_a_server_that_does_not_come_to_rest_fails_the_run() -> None:
    judgement = judge(RECORDS, client(40), server_at_rest=False)
    assert (judgement.verdict, [check.name for check in judgement.tripped]) == (
        Verdict.SERVER_FAILED, ["server_at_rest"],
    )  # fmt: skip
    assert judge(RECORDS, client(40), server_at_rest=True).verdict is Verdict.VALID


def test_every_check_of_a_full_judgement_is_tripped_by_one_of_these_tests() -> None:
    names = {check.name for check in judge(RECORDS, client(40), engine=EngineReport(), server_at_rest=True).checks}
    assert names == {
        "not_interrupted", "all_due_accounted", "all_sent", "warm_up_apart", "server_alive", "some_request_served",
        "output_lengths", "server_at_rest", "sender_lag_p99", "loop_lag_p99", "client_cpu_share", "open_files",
        "sent_share",
    }  # fmt: skip
