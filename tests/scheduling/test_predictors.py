import math

import pytest

from engine.core.batch import TaskKind, Work
from engine.core.clock import NS_PER_S
from engine.model.granularity import Granularity
from engine.model.operators import plan_prefill
from engine.model.shape import ModelShape
from engine.scheduling.predictors.attention_curve import AttentionCurve
from engine.scheduling.predictors.guarded import LONGEST_NS, GuardedPredictor
from engine.scheduling.predictors.operator_sum import (
    OperatorCount,
    OperatorSample,
    OperatorSumPredictor,
    decoder_counts,
)
from engine.scheduling.predictors.polynomial import PolynomialPredictor, PrefillSample, fit
from engine.scheduling.predictors.sampled_curve import RangeError
from tests.model.tiny_shapes import DENSE, MOE, segments
from tests.scheduling.rig import Rig, request

LENGTHS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)


def seconds(new: int, context: int = 0) -> float:
    end = new + context
    return 0.01 + 2e-5 * new + 3e-9 * (end**2 - context**2) + 1e-14 * (end**3 - context**3)


def test_a_polynomial_by_hand() -> None:
    predictor = PolynomialPredictor((1.0, 0.1, 0.01, 0.001))
    # 2 new after 3: c0 + 2 c1 + (25 - 9) c2 + (125 - 27) c3
    assert predictor.estimate_ns(Work(((2, 3),))) == round((1 + 0.2 + 0.16 + 0.098) * NS_PER_S)
    # Two sequences share c0; the lengths are priced one by one, not as their sum.
    assert predictor.estimate_ns(Work(((2, 3), (1, 0)))) == round((1 + 0.3 + 0.17 + 0.099) * NS_PER_S)
    assert predictor.estimate_ns(Work(((2, 0), (1, 0)))) < predictor.estimate_ns(Work(((3, 0),)))


def test_chunks_of_a_prompt_cost_the_whole_and_a_start_each() -> None:
    predictor = PolynomialPredictor((0.5, 2e-5, 3e-9, 1e-14))
    whole = predictor.estimate_ns(Work(((4096, 0),)))
    chunks = sum(predictor.estimate_ns(Work(((1024, start),))) for start in range(0, 4096, 1024))
    assert chunks - whole == pytest.approx(3 * 0.5 * NS_PER_S, abs=4)
    later, first = (predictor.estimate_ns(Work(((1024, start),))) for start in (3072, 0))
    assert later > first


def test_fit_finds_the_coefficients() -> None:
    samples = [PrefillSample(n, 0, seconds(n)) for n in LENGTHS]
    samples += [PrefillSample(256, x, seconds(256, x)) for x in (256, 1024, 7000)]
    assert fit(samples).coefficients == pytest.approx((0.01, 2e-5, 3e-9, 1e-14), rel=1e-6)


def test_fit_drops_an_outlier_and_fits_again() -> None:
    samples = [PrefillSample(n, 0, seconds(n)) for n in (*LENGTHS, 300, 700, 1500, 3000)]
    samples[5] = PrefillSample(512, 0, 9 * seconds(512))
    fitted = fit(samples)
    for n in (16, 512, 8192):
        assert fitted.estimate_ns(Work(((n, 0),))) == pytest.approx(seconds(n) * NS_PER_S, rel=0.02)


def test_fit_keeps_noisy_samples_when_most_of_them_look_like_outliers() -> None:
    """Three of every four are 10 % off: dropping those would trust the one in four."""
    noise = (1.1, 0.9, 1.1, 0.9, 1.1, 0.9, 1.1, 0.9)
    samples = [PrefillSample(n, 0, seconds(n) * noise[n % 8]) for n in range(100, 4100, 250)]
    samples += [PrefillSample(n, 0, seconds(n) * noise[(n + 1) % 8]) for n in range(100, 4100, 250)]
    fitted = fit(samples)
    for n in (100, 1000, 4000):
        assert fitted.estimate_ns(Work(((n, 0),))) == pytest.approx(seconds(n) * NS_PER_S, rel=0.02)


def test_fit_is_never_negative_and_never_falls() -> None:
    """Times that bend down at both ends would give a cubic with negative coefficients."""
    samples = [PrefillSample(n, 0, t) for n, t in ((16, 0.001), (64, 0.03), (256, 0.04), (1024, 0.045), (4096, 0.046))]
    fitted = fit(samples)
    assert min(fitted.coefficients) >= 0
    estimates = [fitted.estimate_ns(Work(((n, 0),))) for n in range(1, 30_000, 37)]
    assert estimates[0] >= 0
    assert estimates == sorted(estimates)


def test_negative_coefficients_given_by_hand_end_at_zero() -> None:
    assert PolynomialPredictor((-1.0, 0.001, 0.0, 0.0)).estimate_ns(Work(((5, 0),))) == 0


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        ([PrefillSample(1, 0, 1.0)] * 3, "at least 4 samples, got 3"),
        ([PrefillSample(n, 0, 0.0) for n in LENGTHS], "more than 0 seconds"),
        ([PrefillSample(n, 0, math.nan) for n in LENGTHS], "more than 0 seconds"),
    ],
)
def test_samples_that_cannot_be_fitted(samples: list[PrefillSample], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        fit(samples)


OPERATORS = [
    OperatorSample("proj", 100, 0, 0.1),
    OperatorSample("proj", 200, 0, 0.3),
    OperatorSample("proj", 400, 0, 0.4),
    OperatorSample("attention", 100, 0, 1.0),  # 5050 pairs
    OperatorSample("attention", 200, 0, 2.0),  # 20 100 pairs
    OperatorSample("attention", 100, 400, 3.0),  # 45 050 pairs
]
COUNTS = (OperatorCount("proj", 2), OperatorCount("attention", 3, per_sequence=True))


def test_operator_times_are_summed_and_interpolated_between_lengths() -> None:
    predictor = OperatorSumPredictor(OPERATORS, COUNTS)
    assert predictor.estimate_ns(Work(((200, 0),))) == round((2 * 0.3 + 3 * 2.0) * NS_PER_S)
    attention_150 = 1.0 + (150 * 75.5 - 5050) / (20_100 - 5050)
    assert predictor.estimate_ns(Work(((150, 0),))) == round((2 * 0.2 + 3 * attention_150) * NS_PER_S)
    # Projections see the rows of all sequences, attention each sequence for itself, a later chunk its position.
    assert predictor.estimate_ns(Work(((100, 0), (100, 400)))) == round((2 * 0.3 + 3 * 4.0) * NS_PER_S)


def test_attention_over_cached_tokens_is_read_by_their_pairs() -> None:
    points = [(10, 0, 1.0), (20, 0, 3.0), (100, 0, 60.0), (10, 40, 5.0), (20, 40, 11.0)]
    curve = AttentionCurve("attention", points)  # 400 cached pairs take 4 s, 800 take 8 s
    assert curve.at(10, 60) == pytest.approx(1 + 6)
    assert curve.at(20, 10) == pytest.approx(3 + 2)  # 200 pairs, half-way to the first measured
    assert curve.at(10, 81) == pytest.approx(3 + 57 * (55 + 810 - 210) / (5050 - 210))  # past 800: all pairs as own
    assert curve.at(10, 0) == 1
    with pytest.raises(RangeError, match="was measured from 55 to 5050, not at 5055"):
        curve.at(10, 500)
    noisy = AttentionCurve("attention", [(10, 0, 1.0), (10, 40, 0.9)])
    assert noisy.at(10, 40) == pytest.approx(1)
    with pytest.raises(ValueError, match="no times of operator 'attention'"):
        AttentionCurve("attention", [(10, 40, 0.9)])


def test_operator_times_never_fall() -> None:
    dented = [*OPERATORS, OperatorSample("proj", 300, 0, 0.2)]
    predictor = OperatorSumPredictor(dented, (OperatorCount("proj", 1),))
    assert predictor.estimate_ns(Work(((300, 0),))) == round(0.3 * NS_PER_S)


@pytest.mark.parametrize("lengths", [((99, 0),), ((401, 0),), ((100, 500),), ((300, 0), (101, 0))])
def test_lengths_outside_the_profile_are_refused(lengths: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(RangeError, match="was measured from"):
        OperatorSumPredictor(OPERATORS, COUNTS).estimate_ns(Work(lengths))


def test_a_profile_without_an_operator_or_with_an_impossible_time_is_refused() -> None:
    with pytest.raises(ValueError, match="no times of operator 'head'"):
        OperatorSumPredictor(OPERATORS, (OperatorCount("head", 1),))
    with pytest.raises(ValueError, match="operator 'proj': every time must be above 0 s"):
        OperatorSumPredictor([OperatorSample("proj", 1, 0, 0.0)], (OperatorCount("proj", 1),))


def test_a_decoder_of_six_layers() -> None:
    counts = {count.operator: (count.times, count.per_sequence) for count in decoder_counts(6)}
    assert counts["attention"] == (6, True)
    assert counts["embedding"] == counts["head"] == (1, False)
    assert sum(times for times, _ in counts.values()) == 2 + 5 * 6


@pytest.mark.parametrize("shape", [DENSE, MOE])
def test_a_decoders_operators_are_those_of_its_plan(shape: ModelShape) -> None:
    plan = plan_prefill(shape, segments((10, 0)), Granularity.OPERATOR)
    planned = [name.split(".")[-1] for name, _ in plan.operators()]
    counts = decoder_counts(shape.layers, set(planned))
    layer = [count.operator for count in counts if count.times == shape.layers]
    assert planned == ["embedding", *layer * shape.layers, "head"]


@pytest.mark.parametrize("layers", [1, 2])
def test_a_partly_executed_prefill_is_the_sum_of_the_operators_left(layers: int) -> None:
    """Every operator takes another power of two: the sum tells which ones are in it."""
    kinds = ("embedding", "qkv_proj", "attention", "o_proj", "gate_up_proj", "down_proj", "head")
    samples = [OperatorSample(kind, 8, 0, float(4**place)) for place, kind in enumerate(kinds)]
    predictor = OperatorSumPredictor(samples, decoder_counts(layers))
    order = [0, *(1, 2, 3, 4, 5) * layers, 6]
    for done in range(len(order) + 1):
        left = sum(4**place for place in order[done:])
        assert predictor.estimate_ns(Work(((8, 0),), operators_done=done)) == left * NS_PER_S


class Says:
    def __init__(self, value: object) -> None:
        self.value = value

    def estimate_ns(self, work: Work) -> int:
        if isinstance(self.value, Exception):
            raise self.value
        return self.value  # type: ignore[return-value]

    def observe(self, work: Work, executed_ns: int) -> None:
        pass


@pytest.mark.parametrize(
    ("value", "estimate", "clamped"),
    [
        (5, 5, 0),
        (0, 0, 0),
        (-1, 0, 1),
        (math.nan, 0, 1),
        (math.inf, LONGEST_NS, 1),
        (LONGEST_NS + 1, LONGEST_NS, 1),
        (10**400, LONGEST_NS, 1),  # an integer no float can hold
        (RangeError("too long"), LONGEST_NS, 1),
        (ValueError("cannot convert float NaN to integer"), LONGEST_NS, 1),
    ],
)
def test_estimates_that_make_no_sense_are_repaired_and_counted(value: object, estimate: int, clamped: int) -> None:
    guarded = GuardedPredictor(Says(value))
    assert guarded.estimate_ns(Work(((1, 0),))) == estimate
    assert guarded.clamped == clamped


@pytest.mark.parametrize("value", [math.nan, -5, ValueError("no idea")])
def test_an_engine_with_a_mad_predictor_serves_and_says_so(value: object) -> None:
    rig = Rig()
    rig.scheduler._predictor._inner = Says(value)
    rig.arrive(request("A", 100), request("B", 50))
    rig.drain()
    assert sorted(rig.runs) == ["A", "B"]
    assert rig.scheduler.report().predictions_clamped > 0
    rig.scheduler.reset_report()
    assert rig.scheduler.report().predictions_clamped == 0
    rig.check_baseline()


def test_a_predictor_learns_from_completed_tasks_only() -> None:
    rig = Rig()
    rig.arrive(request("A", 1000, max_tokens=2))
    rig.arrive(request("B", 10, slo_ns=5_000_000, at_ns=1))
    rig.drain()
    assert rig.predictor.observed == [
        (Work(((10, 0),)), 10_000),
        (Work(((1000, 0),)), 1_000_000),
        (Work(((1, 1000),), TaskKind.DECODE_STEP), 100),
    ]
