"""Points at a rate in requests per second, for a time in seconds."""

from pathlib import Path

import pytest

from engine.core.trace import TraceRow
from harness.assembly.reading import SettingsError
from harness.assembly.requests import asked_rps, plan_point, read_trace
from harness.experiments.placement import instant_of_row, placed
from harness.experiments.prepare import Prepared
from tests.experiments.points import prepared, profile_text


@pytest.fixture
def base(tmp_path: Path) -> Prepared:
    path = tmp_path / "profile.json"
    path.write_text(profile_text())
    (ready,) = prepared(str(path), "workload.window_s=120")
    return ready


@pytest.mark.parametrize(("rate_rps", "window_s"), [(2.0, 30.0), (20.0, 60.0), (0.7, 10.0)])
@pytest.mark.parametrize("factor", [0.5, 3.0])
def test_the_rate_and_the_time_are_those_asked_whatever_the_factor(
    base: Prepared, rate_rps: float, window_s: float, factor: float
) -> None:
    ready = placed(base, read_trace(base.settings.workload), factor, rate_rps, window_s, seed=4)
    requests = plan_point(ready.settings, ready.window, ready.given.slo_speed_factor)
    assert len(requests) == round(rate_rps * window_s)
    assert asked_rps(requests) == pytest.approx(rate_rps, rel=1e-6)
    assert ready.expected_s == pytest.approx(len(requests) / rate_rps, rel=1e-6)
    assert {request.slo.ttft_ns for request in requests if request.task == "text"} == {round(0.25e9 * factor)}


def test_every_load_is_a_point_of_its_own_and_the_same_one_again(base: Prepared) -> None:
    loaded = read_trace(base.settings.workload)
    loads = [(1.0, 5.0, 60.0, 0), (1.0, 5.0, 60.0, 1), (1.0, 6.0, 60.0, 0), (2.0, 5.0, 60.0, 0), (1.0, 5.0, 30.0, 0)]
    names = [placed(base, loaded, *load).point for load in loads]
    assert len(set(names)) == len(loads)
    assert placed(base, loaded, *loads[0]).point == names[0]


def test_rows_repeat_after_their_period() -> None:
    rows = [TraceRow(at, 8, 1, "text") for at in (0.0, 1.0, 4.0)]
    assert [instant_of_row(rows, 6.0, number) for number in (1, 2, 3, 7)] == [1.0, 4.0, 6.0, 13.0]


def test_rows_that_arrive_at_once_have_no_rate() -> None:
    with pytest.raises(SettingsError, match="all arrive at once"):
        instant_of_row([TraceRow(0.0, 8, 1, "text")] * 2, 6.0, 1)
