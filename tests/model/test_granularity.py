import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model.granularity import TileSettings, attention_tiles, pairs_of, row_tiles
from engine.model.segments import Segment


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


def test_pairs_count_every_position_a_row_attends_to() -> None:
    segment = Segment("a", 0, 4, 10, True)
    # Rows 1 and 2 after 10 tokens in the cache attend to 12 and 13 positions.
    assert pairs_of([(segment, 1, 3)]) == 25
    assert pairs_of([(segment, 0, 4)]) == 11 + 12 + 13 + 14


@pytest.mark.parametrize(("rows", "pairs", "named"), [(0, 1, "tile rows"), (1, 0, "tile pairs")])
def test_an_empty_tile_is_refused(rows: int, pairs: int, named: str) -> None:
    with pytest.raises(ValueError, match=f"{named} must be at least 1, got 0"):
        TileSettings(rows, pairs)
