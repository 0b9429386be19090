import math

from hypothesis import given
from hypothesis import strategies as st

from engine.core.batch import Sequence
from engine.model.granularity import Granularity, TileSettings, attention_tiles, pairs_of, row_tiles
from engine.model.segments import Segment
from engine.torch_backend.models.llama import Llama
from tests.torch_backend.engine_run import new_cache, plan, prompt


def boundaries(model: Llama, granularity: Granularity) -> list[str]:
    cache = new_cache(model)
    cache.allocate("a", 20)
    program = plan(model, cache, [Sequence("a", 0, 20)], {"a": prompt(20)}, granularity, TileSettings(10, 105))
    return [operator.name for operator in program.operators if operator.boundary]


def test_boundaries_of_each_granularity(tiny: Llama) -> None:
    assert boundaries(tiny, Granularity.NONE) == []
    assert boundaries(tiny, Granularity.LAYER) == ["embedding", "L0.qkv_proj", "L1.qkv_proj", "head"]
    assert boundaries(tiny, Granularity.HALF_LAYER) == [
        "embedding", "L0.qkv_proj", "L0.gate_up_proj", "L1.qkv_proj", "L1.gate_up_proj", "head",
    ]  # fmt: skip
    per_layer = ["qkv_proj", "attention", "o_proj", "gate_up_proj", "down_proj"]
    assert boundaries(tiny, Granularity.OPERATOR) == [
        "embedding", *[f"L{layer}.{name}" for layer in (0, 1) for name in per_layer], "head",
    ]  # fmt: skip
    tiles = [f"L{layer}.{name}[{tile}/2]" for layer in (0, 1) for name in per_layer for tile in (0, 1)]
    assert boundaries(tiny, Granularity.TILE) == ["embedding", *tiles, "head"]


def test_short_operators_are_not_split(tiny: Llama) -> None:
    cache = new_cache(tiny)
    cache.allocate("a", 20)
    program = plan(
        tiny, cache, [Sequence("a", 0, 20)], {"a": prompt(20)}, Granularity.TILE, TileSettings(rows=20, pairs=210)
    )
    assert [operator.name for operator in program.operators][1:6] == [
        "L0.qkv_proj", "L0.attention", "L0.o_proj", "L0.gate_up_proj", "L0.down_proj",
    ]  # fmt: skip


def test_row_tiles_are_the_fewest_of_about_equal_size() -> None:
    assert row_tiles(1, 5) == [(0, 1)]
    assert row_tiles(10, 5) == [(0, 5), (5, 10)]
    assert row_tiles(11, 5) == [(0, 3), (3, 7), (7, 11)]


def test_attention_tiles_of_one_prompt_have_equal_area() -> None:
    segment = Segment("a", 0, 1000, 0, True)
    spans = attention_tiles([segment], 500 * 501 // 2)
    assert len(spans) == 4 or len(spans) == 5
    edges = [part[0][2] for part in spans]
    for tile, edge in enumerate(edges, start=1):
        assert abs(edge - 1000 * math.sqrt(tile / len(spans))) <= 1


segments = st.lists(st.tuples(st.integers(1, 60), st.integers(0, 80)), min_size=1, max_size=5).map(
    lambda sizes: [
        Segment(str(i), sum(rows for rows, _ in sizes[:i]), rows, context, True)
        for i, (rows, context) in enumerate(sizes)
    ]
)


@given(segments, st.integers(1, 3000))
def test_attention_tiles_cover_every_query_row_once_and_in_order(parts: list[Segment], bound: int) -> None:
    tiles = attention_tiles(parts, bound)
    rows = [(s.request_id, row) for tile in tiles for s, first, stop in tile for row in range(first, stop)]
    assert rows == [(s.request_id, row) for s in parts for row in range(s.rows)]
    assert all(first < stop for tile in tiles for _, first, stop in tile)


@given(segments, st.integers(1, 3000))
def test_attention_tiles_exceed_the_bound_by_less_than_one_row(parts: list[Segment], bound: int) -> None:
    widest_row = max(s.context_tokens + s.rows for s in parts)
    assert all(pairs_of(tile) < bound + 2 * widest_row for tile in attention_tiles(parts, bound))
