"""One operator of each bound, reckoned by hand. Order of a program: embedding, five operators a layer (twice), head."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from engine.core.batch import Sequence, Task, TaskKind
from engine.model.granularity import Granularity, TileSettings
from engine.simulation.devices.roofline import RooflineDevice
from tests.simulation.devices.rig import SHAPE, accelerator, task

EMBEDDING, QKV, ATTENTION, OUT, GATE_UP, DOWN, HEAD = 0, 1, 2, 3, 4, 5, 11
MOE = dataclasses.replace(SHAPE, experts=4, experts_per_token=2, moe_intermediate_size=6)
ROUTER, EXPERTS = 4, 5


def seconds(given: Task, tensor_parallel: int = 1, shape: Any = SHAPE, **changes: Any) -> np.ndarray:
    return RooflineDevice(shape, accelerator(**changes), tensor_parallel).program(given).seconds


def test_a_product_bound_by_its_flops() -> None:
    # 5 rows count as 8. Gate and up: 2 x 8 rows x 8 x 32 = 4096 flops at half of 1000 a second, and the launch.
    found = seconds(task((5, 0)), peak_flops=1000.0, projection_efficiency=0.5, tile_rows=4, launch_s=0.25)
    assert found[GATE_UP] == pytest.approx(8.192 + 0.25)
    assert found[QKV] == pytest.approx(2 * 8 * 8 * 24 / 500 + 0.25)
    assert found[DOWN] == pytest.approx(2 * 8 * 16 * 8 / 500 + 0.25)


def test_products_bound_by_their_bytes() -> None:
    found = seconds(task((3, 0)), bandwidth_bytes_s=100.0)
    # Weights 8 x 8, and a row's queries read, its residual read and written: (64 + 3 x 24) elements of 2 bytes.
    assert found[OUT] == pytest.approx(272 / 100)
    # Weights 8 x 24; a row: norm 16, read 8, written 24, rotation of q and k 32, k and v to the cache 32.
    assert found[QKV] == pytest.approx(2 * (192 + 3 * 112) / 100)
    # Weights 8 x 32; a row: norm 16, read 8, gate and up written 32, the activation reads 32 and writes 16.
    assert found[GATE_UP] == pytest.approx(2 * (256 + 3 * 104) / 100)
    assert found[DOWN] == pytest.approx(2 * (128 + 3 * (16 + 16)) / 100)
    # A row looked up: its id of 8 bytes, read and written.
    assert found[EMBEDDING] == pytest.approx(3 * (8 + 32) / 100)


def test_attention_by_query_and_context() -> None:
    # 3 rows after 4: 3 x 4 + 6 = 18 pairs of 2 heads; 4 flops for each of 4 dimensions.
    found = seconds(task((3, 4)), peak_flops=100.0, attention_efficiency=0.5)
    assert found[ATTENTION] == pytest.approx(18 * 2 * 16 / 50)
    # Queries read and written, 2 x 8 x 3; all 7 keys and values read, 2 x 8 x 7; 2 bytes each.
    assert seconds(task((3, 4)), bandwidth_bytes_s=100.0)[ATTENTION] == pytest.approx(2 * (48 + 112) / 100)
    # Two sequences attend each to its own.
    both = seconds(task((3, 4), (2, 0)), peak_flops=100.0)[ATTENTION]
    assert both == pytest.approx((18 + 3) * 2 * 16 / 100)


def test_few_query_rows_leave_compute_units_idle() -> None:
    # Blocks of 2 rows: 3 rows after 4 are two blocks a head, of 2 x (4 + 1.5) and 2 x (6 + 1.5) pairs, 4 blocks in all.
    # 3 units take the two long ones and a short one, then the other short one.
    found = seconds(task((3, 4)), peak_flops=100.0, tile_rows=2, compute_units=3)
    assert found[ATTENTION] == pytest.approx(3 * (15 + 11) * 16 / 100)
    # 4 units take all at once, and wait for the long ones; one unit waits for nobody.
    assert seconds(task((3, 4)), peak_flops=100.0, tile_rows=2, compute_units=4)[ATTENTION] == pytest.approx(9.6)
    assert seconds(task((3, 4)), peak_flops=100.0, tile_rows=2)[ATTENTION] == pytest.approx(2 * 26 * 16 / 100)
    # A single row is split along its context: all units share it.
    alone = seconds(task((1, 9)), peak_flops=100.0, tile_rows=2, compute_units=3)[ATTENTION]
    assert alone == pytest.approx(10 * 2 * 16 / 100)


def test_the_head_sees_last_rows_only() -> None:
    ends = Sequence("ends", 0, 5)
    goes_on = Sequence("goes on", 0, 7, last=False)
    found = seconds(Task(0, TaskKind.PREFILL, (ends, goes_on)), peak_flops=1000.0)
    assert found[HEAD] == pytest.approx(2 * 1 * 8 * 32 / 1000)
    without = RooflineDevice(SHAPE, accelerator()).program(Task(0, TaskKind.PREFILL, (goes_on,)))
    assert len(without.seconds) == HEAD


def test_a_decode_step_is_bound_by_weights_and_kv() -> None:
    found = seconds(task((1, 9), (1, 19), kind=TaskKind.DECODE_STEP), peak_flops=1e12, bandwidth_bytes_s=100.0)
    assert found[DOWN] == pytest.approx(2 * (128 + 2 * 32) / 100)
    assert found[ATTENTION] == pytest.approx(2 * (2 * 8 * 2 + 2 * 8 * (10 + 20)) / 100)


def test_two_ranks_halve_the_work_and_sum_twice_a_layer() -> None:
    changes = {
        "peak_flops": 1000.0,
        "allreduce_latency_s": 0.5,
        "allreduce_bandwidth_bytes_s": 10.0,
    }
    found = seconds(task((5, 0)), tensor_parallel=2, **changes)
    # 5 rows of 8 elements of 2 bytes: a ring of 2 sends each byte 2 x 1/2 times.
    summed = 0.5 + 80 / 10
    assert found[QKV] == pytest.approx(2 * 5 * 8 * 12 / 1000)
    assert found[ATTENTION] == pytest.approx(15 * 1 * 16 / 1000)
    assert found[OUT] == pytest.approx(2 * 5 * 4 * 8 / 1000 + summed)
    assert found[GATE_UP] == pytest.approx(2 * 5 * 8 * 16 / 1000)
    assert found[DOWN] == pytest.approx(2 * 5 * 8 * 8 / 1000 + summed)
    assert found[HEAD] == pytest.approx(2 * 8 * 16 / 1000)


def test_key_heads_are_repeated_where_there_are_fewer_than_ranks() -> None:
    shared = dataclasses.replace(SHAPE, kv_heads=1)
    found = seconds(task((5, 0)), tensor_parallel=2, shape=shared, peak_flops=1000.0)
    assert found[QKV] == pytest.approx(2 * 5 * 8 * (4 + 4 + 4) / 1000)


def test_experts_by_the_expected_number_of_distinct_ones() -> None:
    # One token chooses 2 of 4. Two tokens: 4 x (1 - 1/4) = 3 distinct, 4 rows over them, 4/3 each, computed as 2.
    weights = 3 * 8 * 6
    one = seconds(task((1, 0)), shape=MOE, peak_flops=1000.0, expert_efficiency=0.5)
    two = seconds(task((2, 0)), shape=MOE, peak_flops=1000.0, expert_efficiency=0.5, expert_tile_rows=2)
    assert one[EXPERTS] == pytest.approx(2 * weights * 2 / 500)
    assert two[EXPERTS] == pytest.approx(2 * weights * 3 * 2 / 500)
    # Bytes: distinct experts once; a row: gathered, gated and combined for each of its 2 experts, and the residual.
    moved = seconds(task((2, 0)), shape=MOE, bandwidth_bytes_s=100.0)
    assert moved[EXPERTS] == pytest.approx(2 * (weights * 3 + 2 * (2 * (24 + 36) + 16)) / 100)
    assert moved[ROUTER] == pytest.approx(2 * (32 + 2 * (16 + 8 + 4)) / 100)


def test_experts_of_two_ranks() -> None:
    changes = {"peak_flops": 1000.0, "allreduce_latency_s": 0.5, "allreduce_bandwidth_bytes_s": 10.0}
    found = seconds(task((1, 0)), tensor_parallel=2, shape=MOE, **changes)
    assert found[EXPERTS] == pytest.approx(2 * (3 * 8 * 3) * 2 / 1000 + 0.5 + 16 / 10)
    assert found[ROUTER] == pytest.approx(2 * 8 * 4 / 1000)  # on each rank


def test_a_step_pays_its_overhead_once_and_the_release_its_wait_twice_a_layer() -> None:
    parts = accelerator(launch_s=1.0, step_overhead_s=100.0, half_layer_sync_s=10.0)
    plain = RooflineDevice(SHAPE, parts).program(task((1, 0))).seconds
    synced = RooflineDevice(SHAPE, parts, half_layer_sync=True).program(task((1, 0))).seconds
    assert plain == pytest.approx([101] + [1] * 11)
    assert synced == pytest.approx([101] + [1, 1, 11, 1, 11] * 2 + [1])
    layers = RooflineDevice(SHAPE, parts, granularity=Granularity.LAYER, half_layer_sync=True).program(task((1, 0)))
    assert layers.seconds == pytest.approx([101] + [1, 1, 1, 1, 11] * 2 + [1])


@pytest.mark.parametrize(
    ("granularity", "stops"),
    [
        (Granularity.NONE, []),
        (Granularity.LAYER, [EMBEDDING, QKV, QKV + 5, HEAD]),
        (Granularity.HALF_LAYER, [EMBEDDING, QKV, GATE_UP, QKV + 5, GATE_UP + 5, HEAD]),
        (Granularity.OPERATOR, list(range(12))),
    ],
)
def test_a_task_may_stop_where_the_torch_engine_would(granularity: Granularity, stops: list[int]) -> None:
    program = RooflineDevice(SHAPE, accelerator(), granularity=granularity).program(task((3, 0)))
    assert list(np.flatnonzero(program.boundary)) == stops
    assert not program.continuous


def test_tiles_add_up_to_the_operator_they_are_cut_from() -> None:
    parts = accelerator(peak_flops=1000.0)
    tiled = RooflineDevice(SHAPE, parts, 1, Granularity.TILE, TileSettings(rows=2, pairs=4)).program(task((4, 0)))
    whole = RooflineDevice(SHAPE, parts).program(task((4, 0)))
    assert len(tiled.seconds) > len(whole.seconds)
    assert tiled.seconds.sum() == pytest.approx(whole.seconds.sum())
    assert tiled.boundary.all()


def test_nobody_writes_into_a_kept_program() -> None:
    device = RooflineDevice(SHAPE, accelerator())
    program = device.program(task((3, 0)))
    assert device.program(task((3, 0))) is program
    with pytest.raises(ValueError, match="read-only"):
        program.seconds[0] = 1.0


def test_what_cannot_be_is_said() -> None:
    with pytest.raises(ValueError, match="model toy: 2 query heads do not divide into 4 ranks"):
        RooflineDevice(SHAPE, accelerator(), 4)
    with pytest.raises(ValueError, match="tensor_parallel must be at least 1, got 0"):
        RooflineDevice(SHAPE, accelerator(), 0)
    with pytest.raises(ValueError, match="model toy: 15 inner MLP columns do not divide into 2 ranks"):
        RooflineDevice(dataclasses.replace(SHAPE, intermediate_size=15), accelerator(), 2)
    three = dataclasses.replace(SHAPE, heads=6, kv_heads=3)
    with pytest.raises(ValueError, match="model toy: 3 key heads do not divide into 2 ranks"):
        RooflineDevice(three, accelerator(), 2)
    with pytest.raises(ValueError, match="no time for sending KV"):
        RooflineDevice(SHAPE, accelerator()).program(task((1, 0), kind=TaskKind.KV_SEND))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"peak_flops": 0.0}, "accelerator peak_flops must be above 0, got 0.0"),
        ({"launch_s": -1.0}, "accelerator launch_s must be 0 or more, got -1.0"),
        ({"bandwidth_bytes_s": float("nan")}, "accelerator bandwidth_bytes_s must be above 0, got nan"),
        ({"attention_efficiency": 1.5}, "accelerator attention_efficiency must be at most 1, got 1.5"),
        ({"tile_rows": 0}, "accelerator tile_rows must be above 0, got 0"),
    ],
)
def test_an_accelerator_out_of_range_is_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        accelerator(**changes)
