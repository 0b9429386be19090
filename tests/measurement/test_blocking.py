import pytest

from engine.core.clock import NS_PER_MS
from harness.measurement.blocking import (
    GRANULARITY_COLUMNS,
    GranularityFacts,
    GranularityMeasurement,
    blocking_ms,
    expected_blocking_ms,
    granularity_row,
)

FACTS = GranularityFacts(
    experiment="granularity", point="p", series="operator", granularity="operator", chunk_tokens=None,
    backend="engine", source="measured", model="cpu_demo", device="cpu", length_scale=0.25, slo_speed_factor=2.0,
    prompt_tokens=None, seed=0,
)  # fmt: skip


def test_no_pause_asked_is_empty_not_zero() -> None:
    none = blocking_ms([])
    assert (none.n, none.mean, none.max) == (0, None, None)


def test_blocking_by_hand() -> None:
    found = blocking_ms([1 * NS_PER_MS, 3 * NS_PER_MS])
    assert (found.n, found.mean, found.p50, found.p99, found.max) == (2, 2.0, 2.0, pytest.approx(2.98), 3.0)


def test_expected_wait_is_half_of_equal_operators_and_leans_to_long_ones() -> None:
    assert expected_blocking_ms([0.010] * 5) == pytest.approx(5.0)
    assert expected_blocking_ms([0.001, 0.009]) == pytest.approx(1000 * 82e-6 / 0.020)
    assert expected_blocking_ms([]) is None
    assert expected_blocking_ms([0.0]) is None


def test_one_check_per_layer_of_five_equal_operators_blocks_five_times_as_long() -> None:
    operators, layers = [0.002] * 30, [0.010] * 6
    layer, operator = expected_blocking_ms(layers), expected_blocking_ms(operators)
    assert layer is not None
    assert operator is not None
    assert layer / operator == pytest.approx(5.0)


def test_a_row_of_the_granularity_table() -> None:
    found = GranularityMeasurement(
        blocking_ns=(2 * NS_PER_MS, 4 * NS_PER_MS), prefill_tokens=3000, prefill_s=1.5, check_interval_s=(0.004, 0.004)
    )
    row = granularity_row(FACTS, found)
    assert tuple(row) == GRANULARITY_COLUMNS
    assert (row["blocking_n"], row["blocking_mean_ms"], row["blocking_max_ms"]) == (2, 3.0, 4.0)
    assert row["blocking_predicted_mean_ms"] == pytest.approx(2.0)
    assert row["prefill_tokens_per_s"] == pytest.approx(2000.0)
    assert (row["blocking_mean_low_ms"], row["blocking_mean_high_ms"]) == (2.0, 4.0)


def test_a_row_without_pauses_or_prefills_is_empty_there() -> None:
    row = granularity_row(FACTS, GranularityMeasurement((), 0, 0.0))
    assert row["blocking_n"] == 0
    assert [row[c] for c in GRANULARITY_COLUMNS if c.startswith("blocking_") and c != "blocking_n"] == [None] * 7
    assert row["prefill_tokens_per_s"] is None
