import pytest

from engine.core.record import Status
from harness.measurement.attainment import attainment, met_ttft
from tests.measurement.records import record

MISSES = [status for status in Status if status is not Status.OK]


def test_c43_attainment_counts_failures() -> None:
    fast = [record(f"f{i}") for i in range(40)]
    failed = [record(f"x{i}", ttft_ms=None, status=Status.FAILED) for i in range(60)]
    assert attainment(fast + failed).overall.share == pytest.approx(0.40)


def test_c28_rejects_are_misses() -> None:
    served = [record(f"s{i}", ttft_ms=10) for i in range(10)]
    refused = [record(f"r{i}", ttft_ms=None, status=Status.REJECTED) for i in range(10)]
    share = attainment(served + refused).overall.share
    assert share is not None
    assert share <= 0.5


def test_c02_replies_without_a_token_are_misses() -> None:
    empty = [record(f"e{i}", ttft_ms=None, status=Status.FAILED, reason="no token") for i in range(5)]
    assert attainment([record(f"o{i}") for i in range(5)] + empty).overall.share == 0.5


@pytest.mark.parametrize("status", MISSES)
def test_whatever_is_not_ok_is_a_miss_even_with_a_fast_first_token(status: Status) -> None:
    assert not met_ttft(record(ttft_ms=10, status=status))


def test_the_slo_itself_is_met_and_one_ms_more_is_not() -> None:
    assert met_ttft(record(ttft_ms=250, slo_ms=250))
    assert not met_ttft(record(ttft_ms=251, slo_ms=250))


def test_lateness_of_the_client_counts_against_the_slo() -> None:
    assert not met_ttft(record(ttft_ms=300, lag_ms=200, slo_ms=250))


def test_requests_without_an_slo_are_in_no_denominator() -> None:
    report = attainment([record("a"), record("b", slo_ms=None), record("c", slo_ms=None, status=Status.FAILED)])
    assert (report.overall.n, report.overall.met) == (1, 1)


def test_classes_and_the_worst_of_them() -> None:
    report = attainment(
        [
            record("a", task="text"),
            record("b", task="text", ttft_ms=900),
            record("c", task="file"),
            record("d", task="search", ttft_ms=900),
            record("e", task="chat", slo_ms=None),
        ]
    )
    assert {name: (c.met, c.n) for name, c in report.by_class.items()} == {
        "file": (1, 1),
        "search": (0, 1),
        "text": (1, 2),
    }
    assert report.worst_class == "search"
    assert report.worst.share == 0.0
    assert report.overall.share == 0.5


def test_nothing_due_has_no_share() -> None:
    report = attainment([])
    assert (report.overall.share, report.worst_class, report.worst.share, report.joint.share) == (
        None,
        None,
        None,
        None,
    )


def test_joint_attainment_needs_both_and_leaves_single_token_requests_out() -> None:
    report = attainment(
        [
            record("one"),
            record("both", max_tokens=8, tbt_max_ms=50, tbt_slo_ms=100),
            record("slow", max_tokens=8, tbt_max_ms=101, tbt_slo_ms=100),
            record("late", max_tokens=8, ttft_ms=900, tbt_max_ms=50, tbt_slo_ms=100),
        ]
    )
    assert (report.joint.met, report.joint.n) == (1, 3)
    assert (report.overall.met, report.overall.n) == (3, 4)
