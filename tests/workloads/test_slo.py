"""SLO rules, and the speed factor against the published curve."""

import pytest

from engine.core.trace import TraceRow
from workloads.slo import (
    A800_PREFILL_S,
    LengthBin,
    SLORule,
    SLOSettings,
    Target,
    a800_prefill_s,
    slo_speed_factor,
)

MS = 10**6
TASKS = {"text": Target(0.25, 0.1), "file": Target(6.0, 0.2)}
BINS = (LengthBin(100, "short", 0.5, 0.1), LengthBin(1000, "middle", 2.0, None), LengthBin(None, "long", None, None))


def row(tokens=10, task=""):
    return TraceRow(0.0, tokens, 1, task)


def test_by_task_gives_the_class_its_slo():
    objective = SLORule(SLOSettings("by_task", tasks=TASKS)).objective(row(task="file"))
    assert (objective.task, objective.slo.ttft_ns, objective.slo.tbt_ns) == ("file", 6000 * MS, 200 * MS)


def test_both_scales_multiply_both_objectives():
    rule = SLORule(SLOSettings("by_task", tasks=TASKS), slo_scale=0.4, slo_speed_factor=5.0)
    slo = rule.objective(row(task="text")).slo
    assert (slo.ttft_ns, slo.tbt_ns) == (500 * MS, 200 * MS)


@pytest.mark.parametrize(
    ("tokens", "task", "ttft_ns"),
    [(1, "short", 500 * MS), (100, "short", 500 * MS), (101, "middle", 2000 * MS), (1001, "long", None)],
)
def test_by_length_gives_class_and_slo_of_the_first_bin_that_holds_the_row(tokens, task, ttft_ns):
    objective = SLORule(SLOSettings("by_length", bins=BINS)).objective(row(tokens, task="ignored"))
    assert (objective.task, objective.slo.ttft_ns) == (task, ttft_ns)


def test_uniform_keeps_the_rows_class():
    objective = SLORule(SLOSettings("uniform", uniform=Target(1.0))).objective(row(task="chat"))
    assert (objective.task, objective.slo.ttft_ns, objective.slo.tbt_ns) == ("chat", 1000 * MS, None)


def test_a_class_without_slo_is_an_error_that_names_it():
    rule = SLORule(SLOSettings("by_task", tasks=TASKS))
    with pytest.raises(ValueError, match="no SLO for class 'chat'"):
        rule.require_all([row(task="text"), row(task="chat")])
    rule.require_all([row(task="text"), row(task="file")])
    with pytest.raises(ValueError, match=r"no SLO for class 'chat': slo.tasks names text, file"):
        rule.objective(row(task="chat"))
    with pytest.raises(ValueError, match=r"the trace has no classes.*slo=by_length"):
        rule.objective(row())


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"rule": "by_task"}, "tasks is missing"),
        ({"rule": "uniform", "uniform": Target(1.0), "tasks": TASKS}, "tasks is given too"),
        ({"rule": "by_length", "bins": BINS[:2]}, "only the last, must have up_to_tokens null"),
        ({"rule": "by_length", "bins": (BINS[2], BINS[2])}, "only the last, must have up_to_tokens null"),
        ({"rule": "by_length", "bins": (BINS[1], BINS[0], BINS[2])}, "must grow"),
    ],
)
def test_settings_that_do_not_fit_the_rule_are_refused(settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        SLOSettings(**settings)


def test_scales_must_be_above_zero():
    with pytest.raises(ValueError, match="slo_scale must be above 0"):
        SLORule(SLOSettings("by_task", tasks=TASKS), slo_scale=0.0)


def test_the_curve_passes_through_the_published_points():
    assert [a800_prefill_s(tokens) for tokens, _ in A800_PREFILL_S] == pytest.approx([s for _, s in A800_PREFILL_S])


def test_the_curve_is_flat_below_straight_between_and_goes_on_with_the_last_slope():
    assert a800_prefill_s(1) == 0.024
    assert a800_prefill_s(337) == pytest.approx((0.024 + 0.055) / 2)
    last_slope = (1.75 - 0.292) / (16746 - 4174)
    assert a800_prefill_s(16746 + 1000) == pytest.approx(1.75 + 1000 * last_slope)


def test_the_factor_is_total_time_here_over_total_time_there():
    asked = []

    def seconds_of(tokens):
        asked.append(tokens)
        return 0.1 * tokens

    # 128 and 2315 trace tokens: 24 + 166 ms there; 32 and 579 effective tokens: 61.1 s here.
    assert slo_speed_factor([128, 2315], seconds_of, length_scale=0.25) == pytest.approx(61.1 / 0.190)
    assert asked == [32, 579]


def test_the_same_device_has_factor_one():
    assert slo_speed_factor([100, 5000, 20000], a800_prefill_s) == pytest.approx(1.0)


def test_no_rows_or_no_time_is_an_error():
    with pytest.raises(ValueError, match="at least one request"):
        slo_speed_factor([], a800_prefill_s)
    with pytest.raises(ValueError, match="above 0"):
        slo_speed_factor([10], lambda _: 0.0)
