from dataclasses import replace

import pytest

from engine.model.granularity import Granularity, TileSettings
from engine.model.operators import PrefillPlan, plan_prefill
from engine.model.shape import ModelShape
from tests.model.tiny_shapes import DENSE, MOE, segments

DENSE_LAYER = ["qkv_proj", "attention", "o_proj", "gate_up_proj", "down_proj"]
MOE_LAYER = ["qkv_proj", "attention", "o_proj", "router", "experts"]


def names(plan: PrefillPlan) -> list[str]:
    return [name for name, _ in plan.operators()]


def boundaries(plan: PrefillPlan) -> list[str]:
    return [name for name, operator in plan.operators() if operator.boundary]


def in_both_layers(*kinds: str) -> list[str]:
    return [f"L{layer}.{kind}" for layer in (0, 1) for kind in kinds]


@pytest.mark.parametrize(("shape", "layer"), [(DENSE, DENSE_LAYER), (MOE, MOE_LAYER)])
@pytest.mark.parametrize("granularity", [g for g in Granularity if g is not Granularity.TILE])
def test_the_operators_in_order(shape: ModelShape, layer: list[str], granularity: Granularity) -> None:
    plan = plan_prefill(shape, segments((3, 0)), granularity, TileSettings(1, 1))
    assert names(plan) == ["embedding", *in_both_layers(*layer), "head"]
    assert len(plan.layer) == 5
    assert plan.layers == 2


@pytest.mark.parametrize(
    ("shape", "granularity", "expected"),
    [
        (DENSE, Granularity.NONE, []),
        (DENSE, Granularity.LAYER, ["embedding", *in_both_layers("qkv_proj"), "head"]),
        (DENSE, Granularity.HALF_LAYER, ["embedding", *in_both_layers("qkv_proj", "gate_up_proj"), "head"]),
        (DENSE, Granularity.OPERATOR, ["embedding", *in_both_layers(*DENSE_LAYER), "head"]),
        (MOE, Granularity.NONE, []),
        (MOE, Granularity.LAYER, ["embedding", *in_both_layers("qkv_proj"), "head"]),
        (MOE, Granularity.HALF_LAYER, ["embedding", *in_both_layers("qkv_proj", "router"), "head"]),
        (MOE, Granularity.OPERATOR, ["embedding", *in_both_layers(*MOE_LAYER), "head"]),
    ],
)
def test_where_a_task_may_stop(shape: ModelShape, granularity: Granularity, expected: list[str]) -> None:
    assert boundaries(plan_prefill(shape, segments((3, 0)), granularity)) == expected


def flops(plan: PrefillPlan) -> dict[str, int]:
    return {operator.kind: operator.flops for operator in (*plan.first, *plan.layer, *plan.last)}


def test_flops_of_a_dense_prompt() -> None:
    # 3 rows without context attend to 1 + 2 + 3 = 6 positions.
    assert flops(plan_prefill(DENSE, segments((3, 0)), Granularity.OPERATOR)) == {
        "embedding": 0,
        "qkv_proj": 3 * 2 * 8 * (8 + 8),
        "attention": 6 * 2 * (8 + 8),  # scores and weighted values
        "o_proj": 3 * 2 * 8 * 8,
        "gate_up_proj": 3 * 2 * 8 * 24,
        "down_proj": 3 * 2 * 12 * 8,
        "head": 2 * 8 * 10,
    }


def test_flops_of_a_mixture_of_experts() -> None:
    assert flops(plan_prefill(MOE, segments((3, 0)), Granularity.OPERATOR)) == {
        "embedding": 0,
        "qkv_proj": 768,
        "attention": 192,
        "o_proj": 384,
        "router": 3 * 2 * 8 * 4,
        "experts": 3 * 2 * (2 * (8 * 6 + 8 * 6 + 6 * 8)),  # gate, up and down of 2 experts
        "head": 160,
    }


def test_a_batch_counts_each_sequence_after_its_own_context() -> None:
    # 3 rows after 5 attend to 6 + 7 + 8 = 21 positions, 2 rows after none to 1 + 2.
    parts = segments((3, 5), (2, 0))
    plan = plan_prefill(DENSE, parts, Granularity.NONE)
    attention = plan.layer[1]
    assert attention.flops == 24 * 32
    assert (attention.first_row, attention.stop_row) == (0, 5)
    assert attention.spans == ((parts[0], 0, 3), (parts[1], 0, 2))
    assert plan.layer[0].flops == 5 * 256
    assert (plan.last[0].first_row, plan.last[0].stop_row, plan.last[0].flops) == (0, 2, 320)


def test_a_chunk_that_ends_no_prompt_has_no_head() -> None:
    plan = plan_prefill(DENSE, segments((3, 0), last=False), Granularity.OPERATOR)
    assert plan.last == ()
    assert names(plan)[-1] == "L1.down_proj"


@pytest.mark.parametrize(("shape", "layer"), [(DENSE, DENSE_LAYER), (MOE, MOE_LAYER)])
def test_long_operators_are_cut_into_tiles(shape: ModelShape, layer: list[str]) -> None:
    # 5 rows in tiles of at most 2; 15 query-key pairs in tiles of about 15 / 2: rows 0..3 hold 10, rows 4 holds 5.
    (only,) = parts = segments((5, 0))
    plan = plan_prefill(shape, parts, Granularity.TILE, TileSettings(rows=2, pairs=8))
    tiles = {"attention": 2}
    assert names(plan)[1 : 1 + len(plan.layer)] == [
        f"L0.{kind}[{tile}/{tiles.get(kind, 3)}]" for kind in layer for tile in range(tiles.get(kind, 3))
    ]
    assert all(operator.boundary for _, operator in plan.operators())
    qkv = [operator for operator in plan.layer if operator.kind == "qkv_proj"]
    assert [(operator.tile, operator.tiles, operator.first_row, operator.stop_row) for operator in qkv] == [
        (0, 3, 0, 1),
        (1, 3, 1, 3),
        (2, 3, 3, 5),
    ]
    assert [operator.flops for operator in qkv] == [256, 512, 512]
    attention = [operator for operator in plan.layer if operator.kind == "attention"]
    assert [operator.spans for operator in attention] == [((only, 0, 4),), ((only, 4, 5),)]
    assert [operator.flops for operator in attention] == [10 * 32, 5 * 32]
    assert {(operator.first_row, operator.stop_row) for operator in attention} == {(0, 5)}


def test_short_operators_stay_whole() -> None:
    plan = plan_prefill(DENSE, segments((5, 0)), Granularity.TILE, TileSettings(rows=5, pairs=15))
    assert names(plan)[1:6] == [f"L0.{kind}" for kind in DENSE_LAYER]
    # The defaults are far above this task.
    assert plan_prefill(DENSE, segments((5, 0)), Granularity.TILE) == plan


def test_tiles_change_no_total() -> None:
    parts = segments((40, 7), (9, 0), (1, 60))
    whole = plan_prefill(MOE, parts, Granularity.OPERATOR)
    cut = plan_prefill(MOE, parts, Granularity.TILE, TileSettings(rows=3, pairs=50))
    for kind in MOE_LAYER:
        assert sum(o.flops for o in cut.layer if o.kind == kind) == sum(o.flops for o in whole.layer if o.kind == kind)


def test_a_bias_adds_no_matrix_product() -> None:
    parts = segments((3, 0))
    assert plan_prefill(replace(DENSE, qkv_bias=True), parts, Granularity.LAYER) == plan_prefill(
        DENSE, parts, Granularity.LAYER
    )
