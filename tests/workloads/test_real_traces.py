"""Every loader at hand on the production traces, whole; figures checked against the publisher's row counts."""

import hashlib

import pytest

from workloads.fetch import SOURCES, read_sources
from workloads.plan import plan_requests
from workloads.prompts import PromptSettings
from workloads.settings import WorkloadSettings
from workloads.slo import SLORule, SLOSettings, Target, a800_prefill_s, slo_speed_factor
from workloads.traces.catalogue import load_trace
from workloads.window import cut_window

pytestmark = pytest.mark.traces

UNIFORM = SLORule(SLOSettings("uniform", uniform=Target(1.0)))

# name, format, file, rows, span s, mean rate, longest input, ties
TRACES = [
    ("azure_code", "azure", "azure_code_2023.csv", 8819, 3435.948056, 2.5664, 7437, 0),
    ("azure_conv", "azure", "azure_conv_2023.csv", 19366, 3501.721937, 5.5301, 14050, 0),
    ("mooncake", "mooncake", "mooncake_conversation.jsonl", 12031, 3536.999, 3.4012, 126195, 12031 - 1180),
    ("qwen_lengths", "lengths", "qwen_lengths_0_2min.csv", 323, 322 / 2.75, 2.75, 16746, 0),
]


@pytest.mark.parametrize(("name", "kind", "file", "rows", "span_s", "rate", "longest", "ties"), TRACES)
def test_a_real_trace_loads_whole_and_plans(real_traces, name, kind, file, rows, span_s, rate, longest, ties):
    settings = WorkloadSettings(name, kind, str(real_traces / file))
    trace, report = load_trace(settings)
    assert (report.rows_read, report.rows_kept, report.bad_rows, report.order_inversions) == (rows, rows, 0, 0)
    assert report.span_s == pytest.approx(span_s, abs=1e-6)
    assert report.mean_rate_rps == pytest.approx(rate, abs=1e-4)
    assert (report.longest_input_tokens, report.ties) == (longest, ties)
    window, cut = cut_window(trace, settings.window_settings())
    assert cut.rows == cut.rows_in_window - cut.rows_over_long
    requests = plan_requests(window, settings.plan_settings(2.0, 3.0, 0.25), UNIFORM, PromptSettings(4096), 0)
    assert [len(r.token_ids) for r in requests] == [max(1, -(-row.input_tokens // 4)) for row in window.rows]
    assert requests[-1].due_ns == pytest.approx(window.rows[-1].arrival_s * 1.5e9, abs=1)


def test_c42_the_mooncake_window_drops_what_is_over_the_default_bound_and_counts_it(real_traces):
    settings = WorkloadSettings("mooncake", "mooncake", str(real_traces / "mooncake_conversation.jsonl"))
    _, report = cut_window(load_trace(settings)[0], settings.window_settings())
    assert (report.rows_in_window, report.rows_over_long, report.rows) == (339, 96, 243)


def test_c31_azure_instants_keep_seven_digits(real_traces):
    settings = WorkloadSettings("azure_code", "azure", str(real_traces / "azure_code_2023.csv"))
    trace, _ = load_trace(settings)
    assert trace.rows[1].arrival_s == 0.052  # 18:17:03.9799600 -> 18:17:04.0319600


def test_the_published_trace_takes_about_the_published_time(real_traces):
    settings = WorkloadSettings("qwen_lengths", "lengths", str(real_traces / "qwen_lengths_0_2min.csv"))
    lengths = [row.input_tokens for row in load_trace(settings)[0].rows]
    assert slo_speed_factor(lengths, lambda n: 2 * a800_prefill_s(n)) == pytest.approx(2.0)
    assert 0 < sum(map(a800_prefill_s, lengths)) < 120  # the trace fits its two minutes on the paper's device


@pytest.mark.parametrize(
    ("source", "file"),
    [
        ("azure_code_2023", "azure_code_2023.csv"),
        ("azure_conv_2023", "azure_conv_2023.csv"),
        ("mooncake_conversation", "mooncake_conversation.jsonl"),
    ],
)
def test_the_pinned_checksums_are_those_of_the_files_at_hand(real_traces, source, file):
    found = hashlib.sha256((real_traces / file).read_bytes()).hexdigest()
    assert read_sources(SOURCES)[source].sha256 == found
