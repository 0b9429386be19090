import pytest

from engine.core.batch import Sequence, Task, TaskKind, Work
from engine.scheduling.predictors.polynomial import fit
from engine.simulation.devices.curve import CurveDevice
from harness.assembly.simulated_timings import prefill_seconds, published_lengths, sampled_timings


def test_the_published_lengths_are_45_from_16_to_20480() -> None:
    lengths = published_lengths(100_000)
    assert (len(lengths), lengths[0], lengths[-1]) == (45, 16, 20480)
    assert published_lengths(8192, 0.25)[-1] == 5120  # 20480 trace tokens
    assert published_lengths(1000)[-1] == 1000


def test_no_sample_reaches_beyond_the_context() -> None:
    timings = sampled_timings(CurveDevice(0.01, 1e-4, 1e-9), 2, most_tokens=6000)
    assert max(sample.new_tokens + sample.context_tokens for sample in timings.prefills) == 6000
    assert any(sample.context_tokens for sample in timings.prefills)


def test_a_polynomial_fitted_to_a_curve_is_the_curve() -> None:
    device = CurveDevice(0.017373170911, 5.717282857e-5, 2.686895652e-9)
    predictor = fit(sampled_timings(device, 32, 32768).prefills)
    for new, context in ((16, 0), (700, 0), (512, 9000), (16746, 0)):
        work = Work.of(Task(0, TaskKind.PREFILL, (Sequence("r", context, new),)))
        assert predictor.estimate_ns(work) / 1e9 == pytest.approx(prefill_seconds(device, new, context), rel=1e-6)
