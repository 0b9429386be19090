import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.measurement.crossing import MaxGoodput
from harness.measurement.goodput_search import (
    SearchSettings,
    Stopped,
    Tried,
    estimate,
    limit,
    next_rate,
    search,
    together,
)
from harness.measurement.verdict import Verdict

BOUND, FAILED, SHORT = Verdict.CLIENT_BOUND, Verdict.SERVER_FAILED, Verdict.INCOMPLETE


def capacity(of: float):
    """A system that meets every SLO up to its capacity and none above."""
    return lambda rate: Tried(rate, 1.0 if rate <= of else 0.0)


def played(settings: SearchSettings, of: float, bad: dict[float, Verdict] | None = None, client: float = math.inf):
    """A search of a system of capacity `of`. bad: rates never measured well; above `client` nothing is. To 4 digits."""
    tried: list[Tried] = []
    while (rate := next_rate(tried, settings)) is not None:
        rate = float(f"{rate:.4g}")
        verdict = (bad or {}).get(rate, BOUND if rate > client else Verdict.VALID)
        # A measurement that is not VALID claims the opposite of the truth: nobody may listen to it.
        tried.append(Tried(rate, float((rate <= of) is (verdict is Verdict.VALID)), verdict))
    return tried


def test_c45_a_capacity_below_one_request_per_second_is_found() -> None:
    result = search(capacity(0.42), SearchSettings(low=0.05, high=64, budget=20))
    assert result.stopped is Stopped.CONVERGED
    assert result.max_goodput.bound == ""
    assert result.max_goodput.known == pytest.approx(0.42, rel=0.05)


@given(st.floats(0.02, 900))
def test_any_capacity_in_range_is_found_within_the_tolerance(of: float) -> None:
    result = search(capacity(of), SearchSettings(low=0.01, high=1000, budget=40))
    assert result.stopped is Stopped.CONVERGED
    assert result.max_goodput.known == pytest.approx(of, rel=0.05)
    assert all(0.01 <= point.rate <= 1000 for point in result.tried)


def test_a_crossing_outside_the_range_is_a_bound_never_a_number() -> None:
    above = search(capacity(1e6), SearchSettings(low=1, high=8, start=2))
    below = search(capacity(0.1), SearchSettings(low=1, high=8, start=2))
    assert [p.rate for p in above.tried] == [2, 4, 8]
    assert [p.rate for p in below.tried] == [2, 1]
    assert (above.stopped, above.max_goodput.bound, above.max_goodput.known) == (Stopped.RANGE, "above_highest", 8)
    assert (below.stopped, below.max_goodput.bound, below.max_goodput.known) == (Stopped.RANGE, "below_lowest", 1)


def test_the_budget_ends_the_search_and_all_points_are_returned() -> None:
    asked: list[float] = []

    def measure(rate: float) -> Tried:
        asked.append(rate)
        return capacity(3.3)(rate)

    result = search(measure, SearchSettings(low=1, high=100, start=1, budget=4))
    assert result.stopped is Stopped.BUDGET
    assert [point.rate for point in result.tried] == asked
    assert len(asked) == 4


def test_bracket_then_geometric_halving() -> None:
    settings = SearchSettings(low=1, high=64, start=4)
    assert next_rate([], settings) == 4
    assert next_rate([Tried(4, 1.0)], settings) == 8
    assert next_rate([Tried(4, 1.0), Tried(8, 0.5)], settings) == pytest.approx(32**0.5)


def test_a_caller_that_rounds_the_end_of_the_range_is_not_asked_for_it_again() -> None:
    settings = SearchSettings(low=0.12344, high=123.44, start=123.44)
    assert next_rate([Tried(123.4, 1.0)], settings) is None
    assert next_rate([Tried(0.1234, 0.0)], settings) is None


def test_noise_does_not_loop_for_ever() -> None:
    answers = iter([1.0, 0.2, 0.95, 0.85, 0.91, 0.89, 0.9, 0.1, 1.0, 0.3] * 3)
    result = search(lambda rate: Tried(rate, next(answers)), SearchSettings(low=0.1, high=10, budget=10))
    assert len(result.tried) <= 10


def test_a_linear_decline_is_read_off_between_points() -> None:
    result = search(lambda rate: Tried(rate, max(0.0, 1 - rate / 10)), SearchSettings(low=0.1, high=10, budget=20))
    assert result.max_goodput.known == pytest.approx(1.0, rel=0.02)


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"low": 0, "high": 1}, "0 < low < high"),
        ({"low": 2, "high": 1}, "0 < low < high"),
        ({"low": 1, "high": 2, "start": 3}, "outside"),
        ({"low": 1, "high": 2, "step": 1}, "above 1"),
        ({"low": 1, "high": 2, "budget": 0}, "at least 1"),
        ({"low": 1, "high": 2, "tries": 0}, "at least 1"),
        ({"low": 1, "high": 2, "tolerance": 0}, "above 0"),
    ],
)
def test_settings_are_checked(bad: dict[str, float], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        SearchSettings(**bad)  # type: ignore[arg-type]


def test_a_point_that_is_not_valid_is_measured_again_and_then_counts_by_the_valid_one() -> None:
    settings = SearchSettings(low=1, high=64, start=4)
    once = [Tried(4, 0.0, BOUND)]
    assert next_rate(once, settings) == 4
    assert next_rate([*once, Tried(4, 1.0)], settings) == 8
    assert estimate([*once, Tried(4, 1.0)]) == MaxGoodput(4, math.inf)
    assert limit([*once, Tried(4, 1.0)]) is None


def test_a_rate_is_given_up_after_its_tries() -> None:
    twice = [Tried(4, 0.0, BOUND), Tried(4, 0.0, BOUND)]
    assert next_rate(twice, SearchSettings(low=1, high=64, start=4)) == 2
    assert next_rate(twice, SearchSettings(low=1, high=64, start=4, tries=3)) == 4
    assert next_rate(twice[:1], SearchSettings(low=1, high=64, start=4, tries=1)) == 2


def test_a_blocked_rate_inside_the_bracket_is_passed_on_both_sides() -> None:
    """Capacity 3.3; 4 = sqrt(2 x 8) cannot be measured."""
    settings = SearchSettings(low=1, high=64, start=2, step=4, tolerance=0.3, budget=20)
    tried = played(settings, 3.3, {4: BOUND})
    # sqrt(2 x 4) met, then the wider gap (4 ... 8) by its middle, then the lower of two like gaps.
    assert [one.rate for one in tried] == [2, 8, 4, 4, 2.828, 5.657, 3.363]
    assert estimate(tried) == crossing_between(2.828, 3.363)


def crossing_between(met: float, missed: float) -> MaxGoodput:
    at = met + 0.1 * (missed - met)
    return MaxGoodput(pytest.approx(at), pytest.approx(at))


def test_a_client_that_is_the_bottleneck_leaves_a_lower_bound_and_says_so() -> None:
    """The server could do 100, the client can do 5."""
    settings = SearchSettings(low=1, high=64, start=2, tolerance=0.1, budget=30)
    tried = played(settings, 100, client=5)
    assert [one.rate for one in tried] == [2, 4, 8, 8, 5.657, 5.657, 4.757, 5.188, 5.188]
    assert estimate(tried) == MaxGoodput(4.757, math.inf)
    assert limit(tried) == Tried(5.188, 0.0, BOUND)
    result = search(lambda rate: Tried(rate, 1.0, BOUND if rate > 5 else Verdict.VALID), settings)
    assert result.stopped is Stopped.BLOCKED


def test_where_the_lowest_rates_fail_the_bound_is_an_upper_one() -> None:
    """Neither 4 nor low = 2 can be measured, all above misses: 8, down to 2, then between 4 and 8."""
    settings = SearchSettings(low=2, high=64, start=8, tolerance=0.3, budget=30)
    tried = played(settings, 1, {4: FAILED, 2: SHORT})
    assert [one.rate for one in tried] == [8, 4, 4, 2, 2, 5.657, 4.757]
    assert estimate(tried) == MaxGoodput(0, 4.757)
    assert limit(tried) == Tried(4, 1.0, FAILED)


def test_without_one_valid_point_nothing_is_said() -> None:
    tried = played(SearchSettings(low=1, high=64, start=4, budget=20), 100, client=0.5)
    assert [one.rate for one in tried] == [4, 4, 2, 2, 1, 1]
    assert estimate(tried) is None
    assert limit(tried) == Tried(1, 0.0, BOUND)
    result = search(lambda rate: Tried(rate, 1.0, SHORT), SearchSettings(low=1, high=64, start=4))
    assert (result.max_goodput, result.stopped) == (None, Stopped.BLOCKED)


def test_a_bracketed_crossing_has_no_limit() -> None:
    assert limit([Tried(2, 1.0), Tried(4, 0.0), Tried(3, 0.5, BOUND), Tried(8, 0.0, BOUND)]) is None


@given(
    st.floats(0.02, 900), st.lists(st.tuples(st.integers(0, 29), st.sampled_from([BOUND, FAILED, SHORT])), max_size=8)
)
def test_whatever_is_not_valid_the_answer_is_right_and_the_tries_are_bounded(
    of: float, bad_ones: list[tuple[int, Verdict]]
) -> None:
    """The tries of these numbers go wrong, and claim the opposite of the truth."""
    bad, tried = dict(bad_ones), list[Tried]()
    settings = SearchSettings(low=0.01, high=1000, start=1, budget=60, tries=3)
    while (rate := next_rate(tried, settings)) is not None:
        verdict = bad.get(len(tried), Verdict.VALID)
        tried.append(Tried(rate, float((rate <= of) is (verdict is Verdict.VALID)), verdict))
    valid = [one for one in tried if one.verdict is Verdict.VALID]
    for rate in {one.rate for one in tried}:
        at = [one for one in tried if one.rate == rate]
        assert len(at) <= settings.tries
        assert all(one.verdict is not Verdict.VALID for one in at[:-1]), "a VALID point is not measured again"
    found = estimate(tried)
    assert found == estimate(valid)
    assert found is None or found.at_least <= of or found.bound == ""
    met = max((one.rate for one in valid if one.attainment == 1), default=None)
    missed = min((one.rate for one in valid if one.attainment == 0), default=None)
    if found is not None and found.bound == "":
        assert met is not None
        assert missed is not None
        assert met <= found.known <= missed
    elif found is not None and limit(tried) is None:
        assert found.bound == ("above_highest" if of >= 1000 else "below_lowest")


def test_seeds_count_together_once_all_are_valid() -> None:
    bad = Tried(2, 0.1, Verdict.CLIENT_BOUND)
    assert together([[Tried(2, 0.8)], [Tried(2, 1.0)]]) == [Tried(2, 0.9)]
    assert together([[Tried(2, 0.8)], [bad, Tried(2, 0.6)]]) == [bad, Tried(2, pytest.approx(0.7))]
    assert together([[bad], [Tried(2, 0.6)]]) == [bad]
    assert together([[bad, bad], [bad, Tried(2, 0.6)]]) == [bad, bad]
