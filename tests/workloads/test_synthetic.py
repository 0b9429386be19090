"""The synthetic generator against the published class table, and the committed sample against its command."""

import collections

import numpy as np
import pytest

from workloads.class_laws import CLASS_LAWS
from workloads.settings import WorkloadSettings
from workloads.synthetic import SyntheticSettings, class_counts, generate, main
from workloads.traces.catalogue import SAMPLE, load_trace

TABLE = {  # mean, P99, standard deviation of input tokens (paper set-up)
    "text": (645.9, 3256, 629.7),
    "image": (393.3, 807.6, 112.9),
    "search": (5054.8, 15127, 3070.5),
    "file": (4131.9, 10560, 3518.7),
}
MIX = {"text": 226, "image": 24, "search": 66, "file": 11}


@pytest.mark.parametrize("seed", range(5))
def test_lengths_follow_the_class_table_within_5_percent(seed):
    trace = generate(SyntheticSettings(requests=10_000, trace_seed=seed))
    for task, expected in TABLE.items():
        lengths = np.array([row.input_tokens for row in trace.rows if row.task == task])
        found = (lengths.mean(), np.percentile(lengths, 99), lengths.std())
        assert found == pytest.approx(expected, rel=0.05), task


@pytest.mark.parametrize("task", TABLE)
def test_a_law_alone_follows_the_table_at_10000_independent_draws(task):
    # Independent draws, not the generator's stratified ones: the law itself is right.
    for seed in range(5):
        draws = np.random.default_rng(seed).random(10_000)
        lengths = np.array([CLASS_LAWS[task].inputs.tokens_at(u) for u in draws])
        assert (lengths.mean(), np.percentile(lengths, 99), lengths.std()) == pytest.approx(TABLE[task], rel=0.05)


@pytest.mark.parametrize("task", TABLE)
def test_the_exact_moments_of_a_law_are_the_tables(task):
    mean, p99, std = TABLE[task]
    law = CLASS_LAWS[task].inputs
    assert (law.mean(), law.tokens_at(0.99), law.std()) == pytest.approx((mean, p99, std), rel=0.001)


def test_the_mean_over_all_classes_is_the_published_one():
    trace = generate(SyntheticSettings(requests=10_000))
    assert np.mean([row.input_tokens for row in trace.rows]) == pytest.approx(1634.5, rel=0.01)


@pytest.mark.parametrize(("requests", "expected"), [(327, MIX), (654, {k: 2 * v for k, v in MIX.items()})])
def test_the_class_mix_is_the_tables(requests, expected):
    assert class_counts(requests) == expected
    trace = generate(SyntheticSettings(requests=requests))
    assert collections.Counter(row.task for row in trace.rows) == expected


@pytest.mark.parametrize("requests", [1, 2, 10, 1000])
def test_the_mix_of_any_number_adds_up(requests):
    assert sum(class_counts(requests).values()) == requests


def test_seeds_differ_and_repeat():
    one = generate(SyntheticSettings(trace_seed=1))
    assert one == generate(SyntheticSettings(trace_seed=1))
    assert one != generate(SyntheticSettings(trace_seed=2))


def test_gamma_arrivals_are_burstier_than_poisson():
    def gap_cv(**settings):
        gaps = np.diff([row.arrival_s for row in generate(SyntheticSettings(requests=3000, **settings)).rows])
        return gaps.std() / gaps.mean()

    assert gap_cv() == pytest.approx(1.0, rel=0.1)
    assert gap_cv(process="gamma", process_cv=3.0) == pytest.approx(3.0, rel=0.2)


def test_the_sample_is_the_bytes_its_command_writes(tmp_path):
    out = tmp_path / "again.csv"
    assert main(["--requests", "327", "--span-s", "118.8", "--seed", "0", "--out", str(out)]) == 0
    assert out.read_bytes() == SAMPLE.read_bytes()


def test_the_sample_has_the_published_shape():
    trace, report = load_trace(WorkloadSettings("sample", "sample"))
    assert collections.Counter(row.task for row in trace.rows) == MIX
    assert trace.span_s == pytest.approx(1.98 * 60)
    assert report.mean_rate_rps == pytest.approx(2.75, rel=0.01)
    assert report.longest_input_tokens <= 16384
    assert np.mean([row.input_tokens for row in trace.rows]) == pytest.approx(1634.5, rel=0.02)
    assert min(row.output_tokens for row in trace.rows) >= 1


@pytest.mark.parametrize(
    "settings",
    [
        {"requests": 0},
        {"span_s": 0.0},
        {"process": "gamma"},
        {"process_cv": 2.0},
        {"process": "gamma", "process_cv": -1},
    ],
)
def test_settings_out_of_range_are_refused(settings):
    with pytest.raises(ValueError, match=r"must be|goes with"):
        SyntheticSettings(**settings)


def test_the_command_reports_a_mistake_in_one_sentence(tmp_path, capsys):
    assert main(["--requests", "0", "--out", str(tmp_path / "x.csv")]) == 2
    assert capsys.readouterr().err == "error: requests must be at least 1, got 0\n"
    assert not (tmp_path / "x.csv").exists()
