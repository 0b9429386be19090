"""What a task keeps in memory while it is preempted, besides its KV."""

from engine.core.batch import Task
from engine.model.shape import ModelShape

ELEMENT_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
"""Bytes of one element, by the number format's name."""

_INDEX_BYTES = 8


def activation_bytes(shape: ModelShape, task: Task, element_bytes: int) -> int:
    """Bytes that a task keeps while it is preempted, at its worst boundary (temporaries inside operators excluded)."""
    rows, sequences = task.new_tokens, len(task.sequences)
    row_bytes = (shape.hidden_size * element_bytes) + max(
        shape.heads * shape.head_dim * element_bytes, _mlp_row_bytes(shape, element_bytes)
    )
    if sequences > 1:
        row_bytes += shape.head_dim * element_bytes  # cosines and sines of a single sequence are views of the tables
    # Indices: token ids and cache slots of every row, the last row of every sequence.
    # Its last boundary lies before the head, so logits are no part of it.
    return rows * (row_bytes + 2 * _INDEX_BYTES) + sequences * _INDEX_BYTES


def _mlp_row_bytes(shape: ModelShape, element_bytes: int) -> int:
    """Bytes of a row between the two operators of a layer's MLP half, the residual stream excluded.

    Dense: the gated product. Mixture of experts: the normed row, and each chosen expert's weight and index.
    """
    if not shape.experts:
        return shape.intermediate_size * element_bytes
    return (shape.hidden_size + shape.experts_per_token) * element_bytes + shape.experts_per_token * _INDEX_BYTES
