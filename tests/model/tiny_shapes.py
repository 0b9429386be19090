"""Shapes small enough to count by hand."""

from dataclasses import replace

from engine.model.segments import Segment
from engine.model.shape import QWEN3_MOE, ModelShape

# Queries of a row: 2 heads x 4 = 8 numbers; its keys and values: 2 x 1 head x 4 = 8.
DENSE = ModelShape(
    name="dense",
    vocab_size=10,
    hidden_size=8,
    intermediate_size=12,
    layers=2,
    heads=2,
    kv_heads=1,
    head_dim=4,
    norm_eps=1e-6,
    rope_theta=10000.0,
    rope_scaling=None,
    max_positions=1024,
    tied_embeddings=False,
    eos_token_ids=(1,),
    dtype="bfloat16",
)
MOE = replace(DENSE, name="moe", experts=4, experts_per_token=2, moe_intermediate_size=6, architecture=QWEN3_MOE)


def segments(*lengths: tuple[int, int], last: bool = True) -> tuple[Segment, ...]:
    """One segment for each (rows, context tokens)."""
    first_rows = [sum(rows for rows, _ in lengths[:i]) for i in range(len(lengths))]
    return tuple(
        Segment(f"r{i}", first, rows, context, last)
        for i, (first, (rows, context)) in enumerate(zip(first_rows, lengths, strict=True))
    )
