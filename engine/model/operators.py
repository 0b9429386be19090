"""The operators of a task's prefill in order: what each computes, how it is cut, and where the task may stop."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from engine.model.granularity import (
    Granularity,
    Span,
    TileSettings,
    attention_tiles,
    is_boundary,
    pairs_of,
    row_tiles,
)
from engine.model.segments import Segment
from engine.model.shape import ModelShape


@dataclass(frozen=True, slots=True)
class PlannedOperator:
    """One operator, or one tile of it.

    kind: embedding, qkv_proj, attention, o_proj, gate_up_proj, down_proj, router, experts or head.
    tile, tiles: which of how many; 0 of 1 when not split.
    first_row, stop_row: token rows of the task it computes; of attention all rows, of the head as many as it has.
    spans: attention only, its query rows by segment.
    boundary: the task may stop before it.
    flops: its multiplications and additions in matrix products; norms, rotation and the like are not counted.
    """

    kind: str
    tile: int
    tiles: int
    first_row: int
    stop_row: int
    spans: tuple[Span, ...]
    boundary: bool
    flops: int


@dataclass(frozen=True, slots=True)
class PrefillPlan:
    """The operators of a task: `first`, then `layer` once per layer, then `last`.

    layer: every layer has the same operators. last: the head; empty when no sequence ends its prompt.
    """

    first: tuple[PlannedOperator, ...]
    layer: tuple[PlannedOperator, ...]
    layers: int
    last: tuple[PlannedOperator, ...]

    def operators(self) -> Iterator[tuple[str, PlannedOperator]]:
        """Every operator in order with its name: "embedding", "L3.attention", of a tile "L3.attention[1/4]", "head"."""
        for operator in self.first:
            yield operator.kind, operator
        named = [(_within_layer(operator), operator) for operator in self.layer]
        for layer in range(self.layers):
            for name, operator in named:
                yield f"L{layer}.{name}", operator
        for operator in self.last:
            yield operator.kind, operator


def plan_prefill(
    shape: ModelShape, segments: Sequence[Segment], granularity: Granularity, tiles: TileSettings | None = None
) -> PrefillPlan:
    """The operators of a task whose rows `segments` lays out; a decode step has the same ones.

    tiles: used with granularity `tile` only, None = the defaults.
    """
    rows = sum(segment.rows for segment in segments)
    if granularity is Granularity.TILE:
        cuts = tiles or TileSettings()
        row_cuts, spans = row_tiles(rows, cuts.rows), attention_tiles(segments, cuts.pairs)
    else:
        row_cuts, spans = [(0, rows)], [tuple((segment, 0, segment.rows) for segment in segments)]
    layer: list[PlannedOperator] = []
    for kind, flops_per_row in _layer_kinds(shape):
        boundary = is_boundary(granularity, kind)
        if kind == "attention":
            per_pair = 4 * shape.heads * shape.head_dim
            for tile, part in enumerate(spans):
                flops = per_pair * pairs_of(part)
                layer.append(PlannedOperator(kind, tile, len(spans), 0, rows, part, boundary, flops))
        else:
            for tile, (start, stop) in enumerate(row_cuts):
                flops = flops_per_row * (stop - start)
                layer.append(PlannedOperator(kind, tile, len(row_cuts), start, stop, (), boundary, flops))
    return PrefillPlan(
        first=(PlannedOperator("embedding", 0, 1, 0, rows, (), is_boundary(granularity, "embedding"), 0),),
        layer=tuple(layer),
        layers=shape.layers,
        last=_head(shape, sum(segment.last for segment in segments), is_boundary(granularity, "head")),
    )


def _layer_kinds(shape: ModelShape) -> tuple[tuple[str, int], ...]:
    """Kinds of a layer's operators in order, with the flops of one row (of attention 0: it counts pairs)."""
    hidden, query = shape.hidden_size, shape.heads * shape.head_dim
    attention_half = (
        ("qkv_proj", 2 * hidden * (query + 2 * shape.kv_heads * shape.head_dim)),
        ("attention", 0),
        ("o_proj", 2 * query * hidden),
    )
    if shape.experts:
        expert = 3 * hidden * shape.moe_intermediate_size
        return (
            *attention_half,
            ("router", 2 * hidden * shape.experts),
            ("experts", 2 * shape.experts_per_token * expert),
        )
    middle = shape.intermediate_size
    return (*attention_half, ("gate_up_proj", 4 * hidden * middle), ("down_proj", 2 * middle * hidden))


def _head(shape: ModelShape, sequences: int, boundary: bool) -> tuple[PlannedOperator, ...]:
    if not sequences:
        return ()
    flops = 2 * sequences * shape.hidden_size * shape.vocab_size
    return (PlannedOperator("head", 0, 1, 0, sequences, (), boundary, flops),)


def _within_layer(operator: PlannedOperator) -> str:
    return operator.kind if operator.tiles == 1 else f"{operator.kind}[{operator.tile}/{operator.tiles}]"
