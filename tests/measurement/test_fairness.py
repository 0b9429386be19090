"""Slowdown, spread and Jain's index, worked out by hand."""

import pytest

from engine.core.record import Status
from harness.measurement.fairness import EVERY_CLASS, fairness, jain_index
from tests.measurement.records import record


def test_jains_index_of_equal_shares_is_1_and_of_one_taker_1_over_n() -> None:
    assert jain_index([3.0, 3.0, 3.0]) == pytest.approx(1.0)
    assert jain_index([5.0, 0.0, 0.0, 0.0]) == pytest.approx(0.25)
    assert jain_index([1.0, 3.0]) == pytest.approx(16 / 20)
    assert jain_index([]) is None


def test_each_class_has_its_slowdown_and_spread() -> None:
    records = [
        record("a", task="text", ttft_ms=200, prompt_tokens=100),
        record("b", task="text", ttft_ms=600, prompt_tokens=100),
        record("c", task="file", ttft_ms=1000, prompt_tokens=1000),
    ]
    every, file, text = fairness(records, unloaded_s=lambda tokens: tokens / 1000)
    assert (every.name, file.name, text.name) == (EVERY_CLASS, "file", "text")
    # Alone: 0.1, 0.1 and 1 s; slowed 2, 6 and 1 times.
    assert (text.slowdown_mean, file.slowdown_mean, every.slowdown_mean) == pytest.approx((4.0, 1.0, 3.0))
    assert text.jain == pytest.approx(64 / 80)
    assert every.jain == pytest.approx(81 / (3 * 41))
    assert (text.completion_mean_s, text.completion_variance_s2) == pytest.approx((0.4, 0.08))
    assert text.completion_p99_s == pytest.approx(0.2 + 0.99 * 0.4)
    assert file.completion_variance_s2 is None  # one request
    assert text.few_samples


def test_requests_that_were_not_served_are_counted_and_have_no_time() -> None:
    records = [record("a", ttft_ms=100), record("b", ttft_ms=None, status=Status.FAILED)]
    every = fairness(records)[0]
    assert (every.n, every.served, every.completion_mean_s) == (2, 1, pytest.approx(0.1))
    assert every.slowdown_mean is None
    assert every.jain is None
    lost = fairness([record("b", ttft_ms=None, status=Status.FAILED)])[0]
    assert (lost.served, lost.completion_mean_s, lost.completion_p99_s) == (0, None, None)


def test_from_100_served_requests_on_the_p99_is_not_flagged() -> None:
    assert not fairness([record(f"r{i}", ttft_ms=10) for i in range(100)])[0].few_samples
    assert fairness([record(f"r{i}", ttft_ms=10) for i in range(99)])[0].few_samples
    assert fairness([]) == ()
