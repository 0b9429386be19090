"""A profile of three lengths, by hand; and the committed one."""

from dataclasses import replace

import numpy as np
import pytest

from engine.core.batch import TaskKind
from engine.model.catalogue import load_shape
from engine.model.granularity import Granularity, TileSettings
from engine.scheduling.predictors.operator_sum import OperatorSample
from engine.scheduling.predictors.polynomial import PrefillSample
from engine.scheduling.predictors.sampled_curve import RangeError
from engine.serving.timings import read_timings
from engine.simulation.devices.profiled import ProfiledDevice
from tests.simulation.devices.rig import ROOT, SHAPE, device_settings, task, total_s

ROW_KINDS = ("embedding", "qkv_proj", "o_proj", "gate_up_proj", "down_proj", "head")
# Operators over rows take 1 s for 10 rows and 3 s for 30. Attention: 2 s for 10 rows (55 pairs), 6 s for 30 (465);
# 8 s for 10 after 20, so 6 s for the 200 pairs before them; 18 s for 10 after 40, so 16 s for 400.
SAMPLES = [
    *(OperatorSample(kind, n, 0, n / 10) for kind in ROW_KINDS for n in (10, 30)),
    OperatorSample("attention", 10, 0, 2.0),
    OperatorSample("attention", 30, 0, 6.0),
    OperatorSample("attention", 10, 20, 8.0),
    OperatorSample("attention", 10, 40, 18.0),
]
DEVICE = ProfiledDevice(SHAPE, SAMPLES)


def test_operators_are_read_between_measured_rows() -> None:
    seconds = DEVICE.program(task((20, 0))).seconds
    attention = 2 + 4 * (210 - 55) / (465 - 55)
    assert seconds == pytest.approx([2] + [2, attention, 2, 2, 2] * 2 + [2])
    # A batch: the rows together, attention one by one; the head once, its rows those of the task.
    assert DEVICE.program(task((10, 0), (20, 0))).seconds[:3] == pytest.approx([3, 3, 2 + attention])


def test_attention_after_cached_tokens() -> None:
    assert DEVICE.program(task((10, 20))).seconds[2] == pytest.approx(8)
    assert DEVICE.program(task((10, 30))).seconds[2] == pytest.approx(2 + 11)
    assert DEVICE.program(task((10, 10))).seconds[2] == pytest.approx(2 + 3)  # on the way from nothing
    with pytest.raises(
        RangeError, match=r"attention \(pairs with cached tokens\)' was measured from 200 to 400, not at 410"
    ):
        DEVICE.program(task((10, 41)))
    without = ProfiledDevice(SHAPE, [sample for sample in SAMPLES if not sample.context_tokens])
    assert total_s(without, task((10, 0))) == pytest.approx(total_s(DEVICE, task((10, 0))))
    with pytest.raises(RangeError, match="operator 'attention' was not measured after cached tokens"):
        without.program(task((10, 1)))


def test_whole_prefills_set_the_scale() -> None:
    # Operators sum to 1 + 2 x 6 + 1 = 14 s at 10 rows and 42 s at 30; whole, 28 s and 42 s: scales 2 and 1.
    whole = [
        PrefillSample(10, 0, 28.0),
        PrefillSample(30, 0, 42.0),
        PrefillSample(9, 0, 1.0),
        PrefillSample(20, 5, 9.0),
    ]
    scaled = ProfiledDevice(SHAPE, SAMPLES, prefills=whole, step_overhead_s=100.0)
    assert total_s(scaled, task((10, 0))) == pytest.approx(28 + 100)
    assert total_s(scaled, task((30, 0))) == pytest.approx(42 + 100)
    assert scaled.program(task((20, 0))).seconds[0] == pytest.approx(1.5 * 2 + 100)
    assert scaled.program(task((20, 0))).seconds[1] == pytest.approx(1.5 * 2)
    shorter = ProfiledDevice(SHAPE, SAMPLES, prefills=[PrefillSample(n, 0, 28.0) for n in (10, 20)])
    with pytest.raises(RangeError, match="whole prefills were measured from 10 to 20 tokens, not at 25"):
        shorter.program(task((25, 0)))
    with pytest.raises(ValueError, match="no whole prefill was measured within the lengths of the operators"):
        ProfiledDevice(SHAPE, SAMPLES, prefills=[PrefillSample(9, 0, 28.0)])


@pytest.mark.parametrize("kind", [*ROW_KINDS, "attention"])
def test_a_missing_operator_is_named(kind: str) -> None:
    with pytest.raises(ValueError, match=f"the profile has no times of operator '{kind}'"):
        ProfiledDevice(SHAPE, [sample for sample in SAMPLES if sample.operator != kind])


def test_a_model_of_experts_needs_their_times() -> None:
    experts = replace(SHAPE, experts=4, experts_per_token=2, moe_intermediate_size=6)
    with pytest.raises(ValueError, match="the profile has no times of operator 'router'"):
        ProfiledDevice(experts, SAMPLES)


def test_lengths_outside_are_refused() -> None:
    with pytest.raises(RangeError, match="operator 'qkv_proj' was measured from 10 to 30, not at 9"):
        DEVICE.program(task((9, 0)))
    with pytest.raises(RangeError, match="operator 'qkv_proj' was measured from 10 to 30, not at 31"):
        DEVICE.program(task((15, 0), (16, 0)))
    with pytest.raises(RangeError, match="not at 1"):
        DEVICE.program(task((1, 20), kind=TaskKind.DECODE_STEP))
    with pytest.raises(ValueError, match="no time for sending KV"):
        DEVICE.program(task((10, 0), kind=TaskKind.KV_SEND))
    with pytest.raises(ValueError, match="no slower after cached tokens than after none"):
        ProfiledDevice(SHAPE, [*SAMPLES, OperatorSample("attention", 10, 1, 2.0)])
    with pytest.raises(ValueError, match="step_overhead_s must be 0 or more, got -1"):
        ProfiledDevice(SHAPE, SAMPLES, step_overhead_s=-1)


def test_tiles_are_priced_as_the_pieces_they_are() -> None:
    tiled = ProfiledDevice(SHAPE, SAMPLES, Granularity.TILE, TileSettings(rows=15, pairs=10_000))
    seconds = tiled.program(task((30, 0))).seconds
    assert seconds == pytest.approx([3] + [1.5, 1.5, 6, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5] * 2 + [3])


def test_the_committed_profile_tells_its_own_prefills() -> None:
    shape = load_shape("cpu_demo")
    timings = read_timings(ROOT / device_settings("cpu_simulated")["profile"], shape.layers)
    operators_alone = ProfiledDevice(shape, timings.operators)
    scaled = ProfiledDevice(shape, timings.operators, prefills=timings.prefills)
    measured = {(s.new_tokens, s.context_tokens): s.seconds for s in timings.prefills}
    for (new, context), seconds in measured.items():
        if not 16 <= new <= 4096 or new * context > 786_432:
            continue
        assert total_s(operators_alone, task((new, context))) == pytest.approx(seconds, rel=0.25)
        # After few tokens the engine attends by another kernel, which the profile's operators did not see.
        tolerance = 1e-6 if context == 0 else 0.15 if new < 64 else 0.07
        assert total_s(scaled, task((new, context))) == pytest.approx(seconds, rel=tolerance)
    lengths = np.arange(16, 4097)
    times = np.array([total_s(scaled, task((int(n), 0))) for n in lengths[::16]])
    assert (np.diff(times) > 0).all()
