"""The rows of a task and its live activations: with the cursor, all a preempted task keeps."""

from dataclasses import dataclass

import torch

from engine.model.segments import Segment
from engine.model.shape import ModelShape
from engine.torch_backend.kv_cache import KVCache, Slots


@dataclass(slots=True)
class TaskState:
    """Rows of all sequences, one after the other.

    token_ids: [rows]. cos, sin: [rows, 1, head_dim / 2]. slots: where the rows' keys and values go.
    hidden: [rows, hidden]; the residual stream, changed in place.
    queries: [rows, heads, head_dim]; rotated queries, then what they attended to.
    middle: between the two operators of the MLP half: [rows, intermediate] the gated product; before experts
        [rows, hidden] the normed rows, and with them `experts` and `expert_weights` [rows, experts of a token].
        All of it shares its memory with `queries`: they are never live together.
    last_rows: [sequences that end their prompt], rows whose logits are wanted.
    """

    segments: tuple[Segment, ...]
    cache: KVCache
    token_ids: torch.Tensor
    cos: torch.Tensor
    sin: torch.Tensor
    slots: Slots
    hidden: torch.Tensor
    queries: torch.Tensor
    middle: torch.Tensor
    experts: torch.Tensor
    expert_weights: torch.Tensor
    last_rows: torch.Tensor
    logits: torch.Tensor | None = None
    sampled: torch.Tensor | None = None

    @property
    def rows(self) -> int:
        """Token rows of the task."""
        return self.token_ids.shape[0]

    def slots_of(self, start: int, stop: int) -> Slots:
        """Cache slots of rows start..stop."""
        if isinstance(self.slots, slice):
            return slice(self.slots.start + start, self.slots.start + stop)
        return self.slots[start:stop]


def build_state(
    shape: ModelShape,
    cache: KVCache,
    rope: tuple[torch.Tensor, torch.Tensor],
    segments: tuple[Segment, ...],
    token_ids: list[int],
) -> TaskState:
    """Lay out a task. Raises ValueError when a sequence passes the model's positions or its KV blocks."""
    for segment in segments:
        if segment.context_tokens + segment.rows > shape.max_positions:
            raise ValueError(
                f"request {segment.request_id} reaches position {segment.context_tokens + segment.rows}, "
                f"model {shape.name} has {shape.max_positions}"
            )
    cos, sin = rope
    device, dtype, rows = cos.device, cos.dtype, len(token_ids)
    spans = [slice(s.context_tokens, s.context_tokens + s.rows) for s in segments]
    places = [cache.slots(s.request_id, span.start, span.stop) for s, span in zip(segments, spans, strict=True)]
    alone = len(segments) == 1
    hidden = torch.empty(rows, shape.hidden_size, device=device, dtype=dtype)
    queries, middle, experts, expert_weights = _inner(shape, rows, device, dtype)
    return TaskState(
        segments=segments,
        cache=cache,
        token_ids=torch.tensor(token_ids, dtype=torch.long, device=device),
        cos=cos[spans[0]] if alone else torch.cat([cos[span] for span in spans]),
        sin=sin[spans[0]] if alone else torch.cat([sin[span] for span in spans]),
        slots=places[0] if alone else torch.cat([_index(place, device) for place in places]),
        hidden=hidden,
        queries=queries,
        middle=middle,
        experts=experts,
        expert_weights=expert_weights,
        last_rows=torch.tensor([s.first_row + s.rows - 1 for s in segments if s.last], dtype=torch.long, device=device),
    )


def _inner(
    shape: ModelShape, rows: int, device: torch.device, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Queries, middle, experts and expert weights in one piece of memory."""
    width = shape.hidden_size if shape.experts else shape.intermediate_size
    query_size, chosen = shape.heads * shape.head_dim, shape.experts_per_token
    per_index = torch.long.itemsize // dtype.itemsize  # elements an index takes the place of
    indices = -(-rows * width // per_index) * per_index  # where they begin: aligned to their own size
    weights = indices + rows * chosen * per_index
    inner = torch.empty(max(rows * query_size, weights + rows * chosen), device=device, dtype=dtype)
    return (
        inner[: rows * query_size].view(rows, shape.heads, shape.head_dim),
        inner[: rows * width].view(rows, width),
        inner[indices:weights].view(torch.long).view(rows, chosen),
        inner[weights : weights + rows * chosen].view(rows, chosen),
    )


def _index(place: Slots, device: torch.device) -> torch.Tensor:
    if isinstance(place, slice):
        return torch.arange(place.start, place.stop, device=device)
    return place
