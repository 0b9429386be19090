"""From a window to requests: instants, lengths, outputs, seeds, conflicts."""

import statistics
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.trace import Trace, TraceRow
from workloads.length_scale import effective_tokens
from workloads.plan import PlanSettings, plan_requests, resampled_lengths, schedule_requests
from workloads.prompts import PromptSettings
from workloads.slo import LengthBin, SLORule, SLOSettings, Target

SECOND = 10**9
PROMPTS = PromptSettings(vocab=4096)
SLOS = SLORule(
    SLOSettings("by_task", tasks={"text": Target(0.25, 0.1), "search": Target(4.0, 0.2)}),
    slo_scale=2.0,
    slo_speed_factor=3.0,
)
WINDOW = Trace("t", (TraceRow(0.5, 10, 7, "text"), TraceRow(0.5, 401, 80, "search"), TraceRow(3.0, 3, 1, "text")))


def plan(window=WINDOW, seed=0, limit=None, **settings):
    return plan_requests(window, PlanSettings(**settings), SLOS, PROMPTS, seed, limit)


def test_a_plan_at_scale_one_is_the_window():
    requests = plan()
    assert [request.request_id for request in requests] == ["r0000", "r0001", "r0002"]
    assert [request.due_ns for request in requests] == [SECOND // 2, SECOND // 2, 3 * SECOND]
    assert [len(request.token_ids) for request in requests] == [10, 401, 3]
    assert [request.max_tokens for request in requests] == [1, 1, 1]
    assert [request.task for request in requests] == ["text", "search", "text"]
    assert requests[1].slo.ttft_ns == 24 * SECOND
    assert requests[0].slo.tbt_ns == round(0.6 * SECOND)


def test_rate_scale_compresses_gaps_and_time_stretch_widens_them():
    assert [r.due_ns for r in plan(rate_scale=4.0)] == [SECOND // 8, SECOND // 8, 3 * SECOND // 4]
    assert [r.due_ns for r in plan(rate_scale=4.0, time_stretch=8.0)] == [SECOND, SECOND, 6 * SECOND]


def test_c38_length_scale_rounds_up_and_prompts_have_exactly_those_lengths():
    requests = plan(length_scale=0.25, output_tokens="trace")
    assert [len(request.token_ids) for request in requests] == [3, 101, 1]
    assert [request.max_tokens for request in requests] == [2, 20, 1]
    assert all(isinstance(token, int) for request in requests for token in request.token_ids)


def test_output_tokens_are_a_number_or_the_traces():
    assert [r.max_tokens for r in plan(output_tokens=5)] == [5, 5, 5]
    assert [r.max_tokens for r in plan(output_tokens="trace")] == [7, 80, 1]
    with pytest.raises(ValueError, match="output_tokens must be at least 1"):
        PlanSettings(output_tokens=0)


def test_with_recorded_arrivals_the_seed_changes_prompts_and_nothing_else():
    one, two = plan(seed=1), plan(seed=2)
    assert [(r.due_ns, len(r.token_ids), r.max_tokens) for r in one] == [
        (r.due_ns, len(r.token_ids), r.max_tokens) for r in two
    ]
    assert all(a.token_ids != b.token_ids for a, b in zip(one, two, strict=True))
    assert one == plan(seed=1)


LONG = Trace("long", tuple(TraceRow(10 + i * i / 100, i + 1, 1, "text") for i in range(2000)))


@pytest.mark.parametrize(("arrivals", "cv", "expected_cv"), [("poisson", None, 1.0), ("gamma", 3.0, 3.0)])
def test_drawn_arrivals_keep_span_rate_and_order_of_lengths(arrivals, cv, expected_cv):
    requests = plan(LONG, seed=5, arrivals=arrivals, arrival_cv=cv, rate_scale=2.0)
    assert requests[0].due_ns == 5 * SECOND
    assert requests[-1].due_ns - requests[0].due_ns == pytest.approx(LONG.span_s / 2 * SECOND, rel=1e-9)
    assert [len(r.token_ids) for r in requests] == list(range(1, 2001))
    gaps = [b.due_ns - a.due_ns for a, b in pairwise(requests)]
    assert min(gaps) >= 0
    assert statistics.pstdev(gaps) / statistics.mean(gaps) == pytest.approx(expected_cv, rel=0.15)


def test_drawn_arrivals_follow_the_seed():
    def instants(seed):
        return [r.due_ns for r in plan(LONG, seed=seed, arrivals="poisson")]

    assert instants(1) == instants(1)
    assert instants(1) != instants(2)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"arrivals": "recorded", "arrival_cv": 2.0}, "conflicts with arrivals=recorded"),
        ({"arrivals": "poisson", "arrival_cv": 2.0}, "conflicts with arrivals=poisson"),
        ({"arrivals": "gamma"}, "arrivals=gamma needs arrival_cv"),
        ({"arrivals": "gamma", "arrival_cv": 0.0}, "arrival_cv must be above 0"),
    ],
)
def test_c39_conflicting_arrival_options_are_refused(settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        PlanSettings(**settings)


@pytest.mark.parametrize("name", ["rate_scale", "time_stretch", "length_scale"])
@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_factors_must_be_positive_numbers(name, value):
    with pytest.raises(ValueError, match=f"{name} must be a number above 0"):
        PlanSettings(**{name: value})


def test_c42_a_request_longer_than_the_model_is_refused_before_the_start():
    with pytest.raises(ValueError, match=r"1 requests need more than the model's 401 positions .*401 prompt and 1"):
        plan(limit=401)
    assert len(plan(limit=402)) == 3


@given(st.integers(1, 10**6), st.integers(1, 400))
def test_effective_tokens_is_the_exact_ceiling(tokens, hundredths):
    assert effective_tokens(tokens, hundredths / 100) == max(1, -(-tokens * hundredths // 100))


def test_a_schedule_is_the_plan_without_its_prompts():
    settings = PlanSettings("poisson", rate_scale=3.0, length_scale=0.25, output_tokens="trace", lengths="resampled")
    planned = plan_requests(LONG, settings, SLOS, PROMPTS, 4)
    scheduled = schedule_requests(LONG, settings, SLOS, 4)
    assert [(r.request_id, r.due_ns, len(r.token_ids), r.max_tokens, r.slo, r.task) for r in planned] == [
        (s.request_id, s.due_ns, s.prompt_tokens, s.max_tokens, s.objective.slo, s.objective.task) for s in scheduled
    ]


MIXED = Trace(
    "mixed",
    tuple(
        TraceRow(i, *((1000 + i, 7) if i % 4 else (i + 1, i + 1)), "search" if i % 4 else "text") for i in range(800)
    ),
)


def test_resampled_lengths_come_from_rows_of_the_class_and_stay_in_pairs():
    drawn = resampled_lengths(MIXED.rows, seed=3)
    assert [(r.arrival_s, r.task) for r in drawn] == [(r.arrival_s, r.task) for r in MIXED.rows]
    for task in ("text", "search"):
        own = [(r.input_tokens, r.output_tokens) for r in MIXED.rows if r.task == task]
        new = [(r.input_tokens, r.output_tokens) for r in drawn if r.task == task]
        assert set(new) <= set(own)
        # With replacement, 1 - 1/e of the rows are expected to be drawn.
        assert len(set(new)) / len(own) == pytest.approx(0.632, abs=0.08)
        assert statistics.mean(n for n, _ in new) == pytest.approx(statistics.mean(n for n, _ in own), rel=0.1)


def test_resampled_lengths_follow_the_seed_and_nothing_else():
    def lengths(seed, **settings):
        return [len(r.token_ids) for r in plan(LONG, seed=seed, lengths="resampled", **settings)]

    assert lengths(1) == lengths(1, rate_scale=5.0, arrivals="poisson")
    assert lengths(1) != lengths(2)
    assert [r.due_ns for r in plan(LONG, lengths="resampled")] == [r.due_ns for r in plan(LONG)]
    # pinned: a release of Python that drew others would change committed results
    assert lengths(1)[:4] == [1293, 1171, 1745, 106]


def test_a_class_made_from_lengths_follows_the_resampled_length():
    bins = (LengthBin(1000, "short", 1.0), LengthBin(None, "long", 4.0))
    unnamed = Trace("u", tuple(TraceRow(i, 10 if i % 2 else 5000, 1) for i in range(40)))
    planned = schedule_requests(
        unnamed, PlanSettings(lengths="resampled"), SLORule(SLOSettings("by_length", bins=bins)), 0
    )
    assert {(s.prompt_tokens, s.objective.task, s.objective.slo.ttft_ns) for s in planned} == {
        (10, "short", SECOND), (5000, "long", 4 * SECOND),
    }  # fmt: skip
