import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.measurement.goodput_search import SearchSettings, Stopped, Tried, next_rate, search


def capacity(of: float):
    """A system that meets every SLO up to its capacity and none above."""
    return lambda rate: 1.0 if rate <= of else 0.0


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

    def measure(rate: float) -> float:
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
    result = search(lambda rate: next(answers), SearchSettings(low=0.1, high=10, budget=10))
    assert len(result.tried) <= 10


def test_a_linear_decline_is_read_off_between_points() -> None:
    result = search(lambda rate: max(0.0, 1 - rate / 10), SearchSettings(low=0.1, high=10, budget=20))
    assert result.max_goodput.known == pytest.approx(1.0, rel=0.02)


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"low": 0, "high": 1}, "0 < low < high"),
        ({"low": 2, "high": 1}, "0 < low < high"),
        ({"low": 1, "high": 2, "start": 3}, "outside"),
        ({"low": 1, "high": 2, "step": 1}, "above 1"),
        ({"low": 1, "high": 2, "budget": 0}, "at least 1"),
        ({"low": 1, "high": 2, "tolerance": 0}, "above 0"),
    ],
)
def test_settings_are_checked(bad: dict[str, float], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        SearchSettings(**bad)  # type: ignore[arg-type]
