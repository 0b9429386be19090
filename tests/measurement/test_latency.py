import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.record import Status
from harness.measurement.latency import (
    enough_for_quantile,
    measured,
    quantile,
    summarize,
    ttft_from_due_ns,
    ttft_from_send_ns,
)
from tests.measurement.records import record


def test_c17_ttft_counts_from_the_due_instant_and_the_sent_one_stands_beside_it() -> None:
    late = record(ttft_ms=300, lag_ms=120)
    assert ttft_from_due_ns(late) == 300_000_000
    assert ttft_from_send_ns(late) == 180_000_000


def test_no_token_has_no_ttft() -> None:
    failed = record(ttft_ms=None, status=Status.FAILED)
    assert ttft_from_due_ns(failed) is None
    assert ttft_from_send_ns(failed) is None
    assert measured([ttft_from_due_ns(failed), 5]) == [5]


def test_quantile_interpolates_between_neighbours() -> None:
    assert quantile([40, 10, 30, 20], 0.5) == 25
    assert quantile([40, 10, 30, 20], 0.99) == pytest.approx(39.7)
    assert quantile([7], 0.99) == 7
    assert quantile([], 0.5) is None
    with pytest.raises(ValueError, match="between 0 and 1"):
        quantile([1], 1.5)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1), st.floats(0, 1))
def test_quantile_agrees_with_numpy(values: list[float], q: float) -> None:
    assert quantile(values, q) == pytest.approx(float(np.quantile(values, q)), abs=1e-6)


def test_c48_a_p99_needs_a_hundred_samples() -> None:
    assert not enough_for_quantile(20, 0.99)
    assert not enough_for_quantile(99, 0.99)
    assert enough_for_quantile(100, 0.99)


def test_summary_of_nothing_is_empty_not_zero() -> None:
    nothing = summarize([])
    assert (nothing.n, nothing.mean, nothing.p50, nothing.p99, nothing.max) == (0, None, None, None, None)
    some = summarize([1.0, 3.0])
    assert (some.n, some.mean, some.p50, some.max) == (2, 2.0, 2.0, 3.0)
