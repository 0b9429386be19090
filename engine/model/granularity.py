"""How finely a task can be preempted: before which operators it may stop, and how tiles are cut."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from engine.model.segments import Segment


class Granularity(StrEnum):
    """Where an executing task may stop. Finer ones include the boundaries of the coarser ones."""

    NONE = "none"  # nowhere: it runs to its end
    LAYER = "layer"  # before each layer and before the head
    HALF_LAYER = "half_layer"  # also between a layer's attention half and its MLP half
    OPERATOR = "operator"  # before every operator
    TILE = "tile"  # also between the tiles that long operators are split into


@dataclass(frozen=True, slots=True)
class TileSettings:
    """Bounds above which `tile` splits an operator; both stand for about the same predicted time.

    rows: token rows of a projection, of the MLP or of the experts.
    pairs: query-key pairs of attention: every query row counts the positions it attends to.
    """

    rows: int = 512
    pairs: int = 262_144

    def __post_init__(self) -> None:
        for name, value in (("rows", self.rows), ("pairs", self.pairs)):
            if value < 1:
                raise ValueError(f"tile {name} must be at least 1, got {value}")


Span = tuple[Segment, int, int]
"""Query rows first..stop of a segment, counted from the segment's first row."""


def is_boundary(granularity: Granularity, kind: str) -> bool:
    """Whether a task may stop before an operator of this kind: "embedding", "head", "qkv_proj", ..."""
    if granularity is Granularity.NONE:
        return False
    if granularity is Granularity.LAYER:
        return kind in ("embedding", "qkv_proj", "head")
    if granularity is Granularity.HALF_LAYER:
        return kind in ("embedding", "qkv_proj", "gate_up_proj", "router", "head")
    return True


def row_tiles(rows: int, bound: int) -> list[tuple[int, int]]:
    """Cut `rows` into the fewest tiles of at most `bound` rows, sizes differing by one at most."""
    count = -(-rows // bound)
    edges = [rows * tile // count for tile in range(count + 1)]
    return list(pairwise(edges))


def attention_tiles(segments: Sequence[Segment], bound: int) -> list[tuple[Span, ...]]:
    """Cut the query rows of all segments into tiles of about equal numbers of query-key pairs, `bound` at most or one
    row: the fewest that do. A tile may hold rows of several segments."""
    areas = [_pairs(segment, segment.rows) for segment in segments]
    count = max(1, -(-sum(areas) // bound))
    tiles: list[list[Span]] = [[] for _ in range(count)]
    share, done = sum(areas) / count, 0
    for segment, area in zip(segments, areas, strict=True):
        row = 0
        while row < segment.rows:
            tile = min(int((done + _pairs(segment, row)) / share), count - 1)
            left = (tile + 1) * share - done
            stop = segment.rows if tile == count - 1 or left >= area else max(row + 1, _rows_within(segment, left))
            stop = min(stop, segment.rows)
            tiles[tile].append((segment, row, stop))
            row = stop
        done += area
    return [tuple(tile) for tile in tiles if tile]


def _pairs(segment: Segment, rows: int) -> int:
    """Query-key pairs of the first `rows` rows of a segment."""
    return rows * segment.context_tokens + rows * (rows + 1) // 2


def _rows_within(segment: Segment, pairs: float) -> int:
    """How many rows from the first hold about this many pairs, rounded up: solves _pairs(rows) = pairs."""
    half = segment.context_tokens + 0.5
    return math.ceil(-half + math.sqrt(half * half + 2 * pairs) - 1e-9)


def pairs_of(spans: Sequence[Span]) -> int:
    """Query-key pairs of these spans."""
    return sum(_pairs(segment, stop) - _pairs(segment, first) for segment, first, stop in spans)
