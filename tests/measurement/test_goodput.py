import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression

from harness.measurement.crossing import crossing, crossings, isotonic_nonincreasing
from harness.measurement.goodput import RatePoint, goodput_ratio, max_goodput

shares = st.lists(st.tuples(st.floats(0, 1), st.floats(0.1, 10)), min_size=1, max_size=30)


def curve(values: dict[float, float], seed: int = 0) -> list[RatePoint]:
    return [RatePoint(seed, rate, share) for rate, share in values.items()]


@given(shares)
def test_pooling_agrees_with_scipy(pairs: list[tuple[float, float]]) -> None:
    values, weights = [v for v, _ in pairs], [w for _, w in pairs]
    expected = isotonic_regression(values, weights=weights, increasing=False).x
    assert np.allclose(isotonic_nonincreasing(values, weights), expected, atol=1e-9)


@given(shares)
def test_the_fit_never_rises_and_keeps_the_mean(pairs: list[tuple[float, float]]) -> None:
    values = [v for v, _ in pairs]
    fit = isotonic_nonincreasing(values, [1.0] * len(values))
    assert all(a >= b for a, b in pairwise(fit))
    assert sum(fit) == pytest.approx(sum(values))


def test_pooling_by_hand() -> None:
    assert isotonic_nonincreasing([1.0, 0.6, 0.8, 0.2], [1, 1, 1, 1]) == pytest.approx([1.0, 0.7, 0.7, 0.2])
    assert isotonic_nonincreasing([0.0, 1.0], [3, 1]) == pytest.approx([0.25, 0.25])
    with pytest.raises(ValueError, match="above 0"):
        isotonic_nonincreasing([1.0], [0.0])


def test_crossing_is_linear_between_points() -> None:
    found = crossing([1, 2, 3], [1.0, 0.95, 0.75])
    assert found.bound == ""
    assert found.known == pytest.approx(2.25)


def test_a_dip_below_the_target_by_noise_is_pooled_away() -> None:
    """0.89 then 0.97 pool to 0.93: the crossing lies beyond both."""
    assert crossing([1, 2, 3, 4], [1.0, 0.89, 0.97, 0.87]).known == pytest.approx(3.5)


def test_all_above_is_a_lower_bound_and_all_below_an_upper_one() -> None:
    above, below = crossing([1, 2], [1.0, 0.95]), crossing([1, 2], [0.85, 0.4])
    assert (above.bound, above.known, above.at_most) == ("above_highest", 2, math.inf)
    assert (below.bound, below.known, below.at_least) == ("below_lowest", 1, 0.0)


def test_exactly_the_target_counts_as_met() -> None:
    assert crossing([1, 2], [0.9, 0.5]).known == pytest.approx(1.0)
    assert crossing([1, 2], [1.0, 0.9]).bound == "above_highest"
    rounding = sum([0.3] * 3)  # 0.8999999999999999
    assert rounding < 0.9
    assert crossing([1], [rounding]).bound == "above_highest"


def test_means_over_seeds_come_before_the_crossing() -> None:
    points = curve({1: 1.0, 2: 1.0, 3: 0.6}, seed=0) + curve({1: 1.0, 2: 0.9, 3: 0.6}, seed=1)
    found, ends = max_goodput(points)
    assert found.known == pytest.approx(2 + 0.05 / 0.35)
    assert ends is not None
    assert (ends.low, ends.high) == (pytest.approx(2.0), pytest.approx(2.25))


def test_one_seed_has_an_estimate_but_no_interval() -> None:
    assert max_goodput(curve({1: 1.0, 2: 0.8}))[1] is None


def test_an_interval_that_the_rates_do_not_bound_says_so() -> None:
    points = curve({1: 1.0, 2: 0.80}, seed=0) + curve({1: 1.0, 2: 0.95}, seed=1)
    found, ends = max_goodput(points)
    assert found.bound == ""
    assert ends is not None
    assert ends.low == pytest.approx(1.5)
    assert ends.high == math.inf


def test_seeds_that_lack_a_rate_are_left_out_of_its_mean_only() -> None:
    points = [*curve({1: 1.0, 2: 0.8}, seed=0), *curve({1: 1.0}, seed=1)]
    assert max_goodput(points)[0].known == pytest.approx(1.5)


def test_bad_points_are_refused() -> None:
    with pytest.raises(ValueError, match="two points at rate"):
        max_goodput([RatePoint(0, 1.0, 0.5), RatePoint(0, 1.0, 0.6)])
    with pytest.raises(ValueError, match="no rates"):
        max_goodput([])
    with pytest.raises(ValueError, match="attainment lies between"):
        RatePoint(0, 1.0, 1.2)
    with pytest.raises(ValueError, match="rate must be above 0"):
        RatePoint(0, 0.0, 0.5)


def test_ratio_is_paired_by_seed() -> None:
    """Seeds differ twofold, yet a is twice b within each: paired, the interval is a point."""
    a = [*curve({2: 1.0, 4: 0.8, 8: 0.0}, 0), *curve({2: 1.0, 4: 0.8, 8: 0.0}, 1)]
    b = [*curve({1: 1.0, 2: 0.8, 4: 0.0}, 0), *curve({1: 1.0, 2: 0.8, 4: 0.0}, 1)]
    ratio = goodput_ratio(a, b)
    assert (ratio.bound, ratio.known, ratio.seeds) == ("", pytest.approx(2.0), 2)
    assert ratio.interval is not None
    assert (ratio.interval.low, ratio.interval.high) == (pytest.approx(2.0), pytest.approx(2.0))


@pytest.mark.parametrize(
    ("a", "b", "bound", "known", "low", "high"),
    [
        ({1: 1.0, 4: 0.95}, {1: 1.0, 2: 0.8}, "at_least", 4 / 1.5, 4 / 1.5, math.inf),
        ({1: 1.0, 2: 0.8}, {1: 0.5, 2: 0.1}, "at_least", 1.5, 1.5, math.inf),
        ({1: 0.5, 4: 0.1}, {1: 1.0, 2: 0.8}, "at_most", 1 / 1.5, 0.0, 1 / 1.5),
        ({1: 1.0, 2: 0.8}, {1: 1.0, 4: 0.95}, "at_most", 1.5 / 4, 0.0, 1.5 / 4),
        ({1: 1.0, 4: 0.95}, {1: 1.0, 4: 0.95}, "unknown", None, 0.0, math.inf),
        ({1: 0.5, 4: 0.1}, {1: 0.5, 4: 0.1}, "unknown", None, 0.0, math.inf),
    ],
)
def test_bounds_give_one_sided_ratios(
    a: dict[float, float], b: dict[float, float], bound: str, known: float | None, low: float, high: float
) -> None:
    ratio = goodput_ratio([*curve(a, 0), *curve(a, 1)], [*curve(b, 0), *curve(b, 1)])
    assert ratio.bound == bound
    assert ratio.known == (known if known is None else pytest.approx(known))
    assert ratio.interval is not None
    assert (ratio.interval.low, ratio.interval.high) == (pytest.approx(low), pytest.approx(high))


def test_ratio_needs_common_seeds() -> None:
    with pytest.raises(ValueError, match="at least one seed"):
        goodput_ratio(curve({1: 1.0}, 0), curve({1: 1.0}, 1))
    only_shared = goodput_ratio(curve({1: 1.0, 3: 0.8}, 0) + curve({1: 0.0}, 7), curve({1: 1.0, 2: 0.8}, 0))
    assert (only_shared.seeds, only_shared.known, only_shared.interval) == (1, pytest.approx(2 / 1.5), None)


@given(
    st.integers(1, 7).flatmap(
        lambda n: st.lists(
            st.lists(st.sampled_from([0.0, 0.5, 0.8, 0.9, 0.95, 1.0, math.nan]), min_size=n, max_size=n),
            min_size=1,
            max_size=8,
        )
    )
)
def test_many_crossings_are_each_a_crossing(means: list[list[float]]) -> None:
    """Draw by draw, rates without a mean left out: what the plain procedure finds."""
    draws = [draw for draw in means if not all(map(math.isnan, draw))]
    if not draws:
        return
    rates = [float(i * i + 1) for i in range(len(draws[0]))]
    at_least, at_most = crossings(rates, np.array(draws))
    for draw, low, high in zip(draws, at_least, at_most, strict=True):
        tried = [(rate, mean) for rate, mean in zip(rates, draw, strict=True) if not math.isnan(mean)]
        found = crossing([rate for rate, _ in tried], [mean for _, mean in tried])
        assert (low, high) == (pytest.approx(found.at_least), pytest.approx(found.at_most))
