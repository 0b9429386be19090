import math

import pytest

from harness.measurement.uncertainty import (
    bootstrap,
    bootstrap_mean,
    paired_ratio,
    percentile_interval,
    resamples,
    wilson,
)


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def test_wilson_against_published_numbers() -> None:
    """8 of 10 at 95 %: Wilson (1927) gives 0.4902 ... 0.9433."""
    ends = wilson(8, 10)
    assert ends is not None
    assert (ends.low, ends.high) == (pytest.approx(0.4902, abs=1e-4), pytest.approx(0.9433, abs=1e-4))


def test_wilson_at_the_ends_and_of_nothing() -> None:
    none, everything = wilson(0, 10), wilson(10, 10)
    assert none is not None
    assert everything is not None
    assert (none.low, none.high) == (0.0, pytest.approx(0.2775, abs=1e-4))
    assert (everything.low, everything.high) == (pytest.approx(0.7225, abs=1e-4), 1.0)
    assert wilson(0, 0) is None
    with pytest.raises(ValueError, match="between 0 and n"):
        wilson(3, 2)


def test_few_seeds_are_resampled_exhaustively() -> None:
    draws = resamples(2)
    assert {draw.counts: draw.weight for draw in draws} == {(0, 2): 0.25, (1, 1): 0.5, (2, 0): 0.25}
    assert len(resamples(5)) == 126
    assert math.fsum(draw.weight for draw in resamples(5)) == pytest.approx(1)


def test_many_seeds_are_resampled_at_random_but_always_alike() -> None:
    assert resamples(20) == resamples(20)
    assert all(sum(draw.counts) == 20 for draw in resamples(20))


def test_bootstrap_by_hand() -> None:
    """Two seeds: the means of the draws are 0 (1/4), 1 (1/2), 2 (1/4): 95 % spans all of them, 40 % the middle."""
    wide, narrow = bootstrap([0.0, 2.0], mean), bootstrap([0.0, 2.0], mean, level=0.40)
    assert wide is not None
    assert narrow is not None
    assert (wide.low, wide.high) == (0.0, 2.0)
    assert (narrow.low, narrow.high) == (1.0, 1.0)


def test_one_seed_has_no_interval() -> None:
    assert bootstrap([1.0], mean) is None
    assert bootstrap_mean([1.0]) is None


def test_bootstrap_mean_covers_what_the_theory_says() -> None:
    samples = [float(i % 10) for i in range(400)]
    ends = bootstrap_mean(samples)
    assert ends is not None
    half = 1.96 * math.sqrt(8.25 / 400)
    assert (ends.low, ends.high) == (pytest.approx(4.5 - half, abs=0.04), pytest.approx(4.5 + half, abs=0.04))


def test_a_paired_ratio_draws_the_same_seeds_for_both() -> None:
    """b is half of a seed by seed: paired, there is no uncertainty at all, though both vary fivefold."""
    a, b = [1.0, 2.0, 5.0], [0.5, 1.0, 2.5]
    ratio, ends = paired_ratio(a, b, mean)
    assert ratio == 2.0
    assert ends is not None
    assert (ends.low, ends.high) == (pytest.approx(2.0), pytest.approx(2.0))


def test_a_paired_ratio_refuses_unequal_sides() -> None:
    with pytest.raises(ValueError, match="same seeds"):
        paired_ratio([1.0], [1.0, 2.0], mean)
    assert paired_ratio([1.0], [0.0], mean) == (math.inf, None)


def test_bounds_widen_the_interval_to_one_side() -> None:
    ends = percentile_interval([1.0, 2.0], [1.0, math.inf], [0.5, 0.5])
    assert (ends.low, ends.high) == (1.0, math.inf)
