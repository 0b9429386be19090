"""Windows, over-long rows, repetition."""

import pytest

from engine.core.trace import Trace, TraceRow
from workloads.traces.errors import TraceError
from workloads.window import WindowSettings, cut_window

TRACE = Trace("t", tuple(TraceRow(float(at), tokens, 5, "text") for at, tokens in enumerate([10, 20, 30, 40, 50, 60])))


def cut(**settings):
    return cut_window(TRACE, WindowSettings(**settings))


def test_a_window_keeps_start_and_leaves_out_its_end():
    trace, report = cut(window_start_s=1.0, window_s=3.0)
    assert [(row.arrival_s, row.input_tokens) for row in trace.rows] == [(0, 20), (1, 30), (2, 40)]
    assert (report.rows_in_window, report.rows, report.rate_rps) == (3, 3, 1.0)


def test_a_window_start_between_rows_keeps_the_silence_before_the_first():
    trace, _ = cut(window_start_s=1.5, window_s=2.0)
    assert [row.arrival_s for row in trace.rows] == [0.5, 1.5]


def test_two_minutes_are_the_default_and_null_is_the_whole_trace():
    assert WindowSettings().window_s == 120.0
    trace, _ = cut(window_s=None, window_start_s=2.0)
    assert [row.input_tokens for row in trace.rows] == [30, 40, 50, 60]


def test_an_empty_window_says_how_long_the_trace_is():
    with pytest.raises(TraceError, match=r"t: no row between 7 and 127 s; the trace spans 5 s"):
        cut(window_start_s=7.0)


def test_c42_over_long_rows_are_dropped_clipped_or_refused_before_the_start_and_counted():
    trace, report = cut(max_input=40)
    assert [row.input_tokens for row in trace.rows] == [10, 20, 30, 40]
    assert (report.rows_in_window, report.rows_over_long, report.rows) == (6, 2, 4)
    assert "2 over 40 input tokens (dropped)" in report.text()
    trace, report = cut(max_input=40, over_long="clip")
    assert [row.input_tokens for row in trace.rows] == [10, 20, 30, 40, 40, 40]
    assert "2 over 40 input tokens (clipped)" in report.text()
    with pytest.raises(TraceError, match=r"2 rows of the window are over max_input = 40 tokens.*at 4 s: 50"):
        cut(max_input=40, over_long="fail")
    with pytest.raises(TraceError, match="every row of the window is over max_input = 4"):
        cut(max_input=4)


def test_c42_the_default_bound_is_16384():
    assert WindowSettings().max_input == 16384
    assert WindowSettings().over_long == "drop"


def test_c36_a_trace_shorter_than_its_window_is_never_silently_repeated():
    trace, report = cut(window_s=600.0)
    assert len(trace.rows) == 6
    assert (report.rows_repeated, report.covered_s) == (0, 5.0)
    assert "600 s asked, rows reach 5 s" in report.text()
    assert "repetitions" not in report.text()


def test_c36_repetition_is_asked_for_and_counted():
    trace, report = cut(window_s=3.0, repeat_to_s=7.5)
    assert [row.arrival_s for row in trace.rows] == [0, 1, 2, 3, 4, 5, 6, 7]
    assert [row.input_tokens for row in trace.rows] == [10, 20, 30, 10, 20, 30, 10, 20]
    assert (report.rows_repeated, report.period_s, report.rows) == (5, 3.0, 8)
    assert "5 of them are repetitions" in report.text()


def test_without_a_window_the_period_is_the_span_and_one_mean_gap():
    trace, report = cut(window_s=None, repeat_to_s=12.0)
    assert report.period_s == 6.0
    assert [row.arrival_s for row in trace.rows] == [float(i) for i in range(12)]


def test_a_repetition_may_end_inside_the_first_period():
    trace, report = cut(window_s=3.0, repeat_to_s=1.5)
    assert [row.arrival_s for row in trace.rows] == [0, 1]
    assert report.rows_repeated == 0


def test_a_repetition_that_no_memory_holds_is_refused():
    with pytest.raises(TraceError, match=r"its 3 rows, one period every 3 s, repeated to 1e\+12 s are over 10000000"):
        cut(window_s=3.0, repeat_to_s=1e12)


@pytest.mark.parametrize(
    "settings", [{"window_start_s": -1.0}, {"window_s": 0.0}, {"repeat_to_s": -2.0}, {"max_input": 0}]
)
def test_settings_out_of_range_name_themselves(settings):
    with pytest.raises(TraceError, match=next(iter(settings))):
        WindowSettings(**settings)
