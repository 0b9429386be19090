"""Order, ties, rates, limits: what admission counts and refuses."""

import pytest

from workloads.traces.admission import AdmissionRules, RawRow, admit
from workloads.traces.custom import load_custom
from workloads.traces.errors import TraceError

SECOND = 10**9
HEADER = "arrival_s,input_tokens,output_tokens\n"


def raw(*instants_s):
    return [(i + 2, RawRow(i + 2, round(at * SECOND), 10 + i, 1)) for i, at in enumerate(instants_s)]


def test_c35_whole_rows_are_sorted_stably_and_inversions_and_ties_counted():
    trace, report = admit("t", "t.csv", raw(5, 1, 5, 1, 9), AdmissionRules())
    assert [(row.arrival_s, row.input_tokens) for row in trace.rows] == [(0, 11), (0, 13), (4, 10), (4, 12), (8, 14)]
    assert report.order_inversions == 2
    assert report.ties == 2
    assert "2 inversions" in report.text()
    assert "2 ties" in report.text()


def test_c34_report_prints_span_and_mean_rate():
    _, report = admit("t", "t.csv", raw(0, 1, 2, 4), AdmissionRules())
    assert report.span_s == 4
    assert report.mean_rate_rps == 0.75
    assert "span 4 s, 0.75 requests/s" in report.text()


@pytest.mark.parametrize(("gap_s", "absurd"), [(0.0005, True), (0.002, False), (50, False), (200, True)])
def test_c34_absurd_rates_are_refused_unless_forced(gap_s, absurd):
    instants = [i * gap_s for i in range(11)]
    if absurd:
        with pytest.raises(TraceError, match=r"wrong column or unit.*any_rate=true"):
            admit("t", "t.csv", raw(*instants), AdmissionRules())
    trace, _ = admit("t", "t.csv", raw(*instants), AdmissionRules(any_rate=True))
    assert trace.span_s == pytest.approx(10 * gap_s)


def test_c34_a_trace_in_seconds_read_as_milliseconds_is_refused(write):
    path = write("own.csv", HEADER + "".join(f"{i * 0.4},10,1\n" for i in range(20)))
    with pytest.raises(TraceError, match="a mean rate of 2500 requests/s"):
        load_custom(path, arrival_unit="ms")
    load_custom(path, arrival_unit="s")


def test_all_rows_at_one_instant_are_refused_unless_forced():
    with pytest.raises(TraceError, match="all rows at one instant"):
        admit("t", "t.csv", raw(3, 3), AdmissionRules())
    _, report = admit("t", "t.csv", raw(3, 3), AdmissionRules(any_rate=True))
    assert report.mean_rate_rps is None
    assert "no mean rate" in report.text()


def test_a_single_row_has_no_rate_and_passes():
    _, report = admit("t", "t.csv", raw(3), AdmissionRules())
    assert (report.rows_kept, report.span_s, report.mean_rate_rps) == (1, 0.0, None)


def test_max_rows_stops_the_reading_and_says_so():
    _, report = admit("t", "t.csv", raw(0, 1, 2, 3), AdmissionRules(max_rows=3))
    assert (report.rows_read, report.rows_kept, report.stopped_early) == (3, 3, True)
    assert "the first 3 rows read" in report.text()
    _, report = admit("t", "t.csv", raw(0, 1, 2), AdmissionRules(max_rows=3))
    assert not report.stopped_early


def test_max_rows_below_one_is_refused():
    with pytest.raises(TraceError, match="max_rows must be at least 1"):
        AdmissionRules(max_rows=0)


def test_c41_a_mistyped_path_is_an_error_that_names_it(tmp_path):
    missing = tmp_path / "azure_cod.csv"
    with pytest.raises(TraceError, match=f"no trace file at {missing}"):
        load_custom(missing)
    with pytest.raises(TraceError, match=f"{tmp_path} is a folder"):
        load_custom(tmp_path)


def test_the_report_names_files_below_this_folder_without_the_folders_above(write, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = write("own.csv", HEADER + "0,1,1\n1,1,1\n")
    assert load_custom(path)[1].source == "own.csv"
