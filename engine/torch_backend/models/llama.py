"""The operators of a Llama-architecture decoder. Each works on rows start..stop of a task, in place."""

import torch
from torch.nn.functional import rms_norm, silu

from engine.model.granularity import Span
from engine.model.shape import ModelShape
from engine.torch_backend.attention import attend
from engine.torch_backend.models.rope import rope_tables, rotate_into
from engine.torch_backend.models.weights import LlamaWeights
from engine.torch_backend.task_state import TaskState

CPU_ROWS_AT_ONCE = 512
"""On a CPU an operator goes through its rows in pieces of this size: its temporaries stay in the caches."""


class Llama:
    """Weights and operators. Every operator reads and writes the task's state; none keeps anything of its own.

    Run them inside `torch.inference_mode()`.
    """

    def __init__(self, shape: ModelShape, weights: LlamaWeights) -> None:
        self.shape = shape
        self.device = weights.embedding.device
        self.dtype = weights.embedding.dtype
        self.rope = rope_tables(shape, self.device, self.dtype)
        self._weights = weights
        self._norm_size = (shape.hidden_size,)
        self._query_size = shape.heads * shape.head_dim
        self._rows_at_once = CPU_ROWS_AT_ONCE if self.device.type == "cpu" else None

    def embedding(self, state: TaskState) -> None:
        """Look up the token rows."""
        torch.index_select(self._weights.embedding, 0, state.token_ids, out=state.hidden)

    def qkv_proj(self, layer: int, state: TaskState, start: int, stop: int) -> None:
        """Norm, q k v projection, rotation; keys and values go to the cache."""
        shape, weights = self.shape, self._weights.layers[layer]
        keys, values = state.cache.keys[layer], state.cache.values[layer]
        for low, high in self._pieces(start, stop):
            normed = rms_norm(state.hidden[low:high], self._norm_size, weights.input_norm, shape.norm_eps)
            qkv = torch.mm(normed, weights.qkv.t()).view(high - low, -1, shape.head_dim)
            q, k, v = torch.split(qkv, [shape.heads, shape.kv_heads, shape.kv_heads], dim=1)
            cos, sin = state.cos[low:high], state.sin[low:high]
            rotate_into(q, cos, sin, state.queries[low:high])
            slots = state.slots_of(low, high)
            if isinstance(slots, slice):
                rotate_into(k, cos, sin, keys[slots])
                values[slots].copy_(v)
            else:
                rotated = torch.empty_like(k)
                rotate_into(k, cos, sin, rotated)
                keys.index_copy_(0, slots, rotated)
                values.index_copy_(0, slots, v)

    def attention(self, layer: int, state: TaskState, spans: tuple[Span, ...]) -> None:
        """Attention of query rows first..stop of each segment named; the result replaces the queries."""
        for segment, first, stop in spans:
            keys, values = state.cache.read(layer, segment.request_id, segment.context_tokens + stop)
            rows = state.queries[segment.first_row + first : segment.first_row + stop]
            rows.copy_(attend(rows, keys, values))

    def o_proj(self, layer: int, state: TaskState, start: int, stop: int) -> None:
        """Output projection, added to the residual stream."""
        attended = state.queries[start:stop].view(stop - start, self._query_size)
        state.hidden[start:stop].addmm_(attended, self._weights.layers[layer].o.t())

    def gate_up_proj(self, layer: int, state: TaskState, start: int, stop: int) -> None:
        """Norm, gate and up projections, silu(gate) x up."""
        weights = self._weights.layers[layer]
        for low, high in self._pieces(start, stop):
            normed = rms_norm(state.hidden[low:high], self._norm_size, weights.post_norm, self.shape.norm_eps)
            gate, up = torch.mm(normed, weights.gate_up.t()).chunk(2, dim=1)
            torch.mul(silu(gate, inplace=True), up, out=state.middle[low:high])

    def down_proj(self, layer: int, state: TaskState, start: int, stop: int) -> None:
        """Down projection, added to the residual stream."""
        state.hidden[start:stop].addmm_(state.middle[start:stop], self._weights.layers[layer].down.t())

    def head(self, state: TaskState) -> None:
        """Final norm and head on the last rows only: state.logits [sequences that end their prompt, vocabulary]."""
        last = state.hidden.index_select(0, state.last_rows)
        normed = rms_norm(last, self._norm_size, self._weights.norm, self.shape.norm_eps)
        state.logits = torch.mm(normed, self._weights.head.t()).float()

    def _pieces(self, start: int, stop: int) -> list[tuple[int, int]]:
        step = self._rows_at_once or stop - start
        return [(low, min(low + step, stop)) for low in range(start, stop, step)]
