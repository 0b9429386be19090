"""The operators that all decoders share. Each works on rows start..stop of a task, in place.

An architecture is a subclass in a file of its own: it holds what differs, and nothing else.
"""

from collections.abc import Callable, Mapping

import torch
from torch.nn.functional import rms_norm, silu

from engine.model.granularity import Span
from engine.model.shape import ModelShape
from engine.torch_backend.attention_kernels import AttentionKernel, Lengths, Sdpa
from engine.torch_backend.models.matrix import Matrix
from engine.torch_backend.models.rope import rope_tables, rotate_into
from engine.torch_backend.models.weights import DecoderWeights, LayerWeights, Mlp
from engine.torch_backend.task_state import TaskState

CPU_ROWS_AT_ONCE = 512
"""On a CPU an operator goes through its rows in pieces of this size: its temporaries stay in the caches."""

RowKernel = Callable[[int, TaskState, int, int], None]
"""What an operator over rows runs: layer, state, first row, row after the last."""


class Decoder:
    """Weights and operators. Every operator reads and writes the task's state; none keeps anything of its own.

    shape: of what these weights hold: of one rank its part (`Shard.shape`).
    all_reduce: sums a tensor over the ranks of a tensor-parallel group, in place; None = one rank has everything.
    attention: the kernel that computes attention; None = sdpa.
    Run the operators inside `torch.inference_mode()`.
    """

    def __init__(
        self,
        shape: ModelShape,
        weights: DecoderWeights,
        all_reduce: Callable[[torch.Tensor], None] | None = None,
        attention: AttentionKernel | None = None,
    ) -> None:
        self.shape = shape
        self.attention_kernel = attention or Sdpa()
        self.device = weights.embedding.device
        self.dtype = weights.embedding.dtype
        self.rope = rope_tables(shape, self.device, self.dtype)
        self._weights = weights
        self._all_reduce = all_reduce
        self._norm_size = (shape.hidden_size,)
        self._query_size = shape.heads * shape.head_dim
        self._rows_at_once = CPU_ROWS_AT_ONCE if self.device.type == "cpu" else None

    def row_kernels(self) -> Mapping[str, RowKernel]:
        """The kernel of each operator kind that works on rows of a layer."""
        return {
            "qkv_proj": self.qkv_proj,
            "o_proj": self.o_proj,
            "gate_up_proj": self.gate_up_proj,
            "down_proj": self.down_proj,
        }

    def embedding(self, state: TaskState) -> None:
        """Look up the token rows."""
        torch.index_select(self._weights.embedding, 0, state.token_ids, out=state.hidden)

    def qkv_proj(self, layer: int, state: TaskState, start: int, stop: int) -> None:
        """Norm, q k v projection, rotation; keys and values go to the cache."""
        shape, weights = self.shape, self._weights.layers[layer]
        keys, values = state.cache.keys[layer], state.cache.values[layer]
        for low, high in self._pieces(start, stop):
            normed = rms_norm(state.hidden[low:high], self._norm_size, weights.input_norm, shape.norm_eps)
            qkv = weights.qkv.times(normed).view(high - low, -1, shape.head_dim)
            q, k, v = torch.split(qkv, [shape.heads, shape.kv_heads, shape.kv_heads], dim=1)
            q, k = self.norm_heads(weights, q, k)
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

    def norm_heads(
        self,
        weights: LayerWeights,  # noqa: ARG002 - what architectures with norms here read
        q: torch.Tensor,
        k: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """What is done to queries and keys [rows, heads, head_dim] before they are rotated: here nothing."""
        return q, k

    def lengths_of(self, spans: tuple[Span, ...]) -> Lengths:
        """What `attention` needs to know of its spans; made once a task, so that no layer waits for a device."""
        return Lengths.of(spans, self.device if spans and self.attention_kernel.joins else None)

    def attention(self, layer: int, state: TaskState, spans: tuple[Span, ...], lengths: Lengths) -> None:
        """Attention of query rows first..stop of each segment named; the result replaces the queries.

        The rows follow each other. lengths: those of the spans.
        """
        read = (
            state.cache.read(layer, segment.request_id, segment.context_tokens + stop) for segment, _, stop in spans
        )
        start = spans[0][0].first_row + spans[0][1]
        self.attention_kernel(state.queries[start : start + sum(lengths.rows)], read, lengths)

    def o_proj(self, layer: int, state: TaskState, start: int, stop: int) -> None:
        """Output projection, added to the residual stream."""
        attended = state.queries[start:stop].view(stop - start, self._query_size)
        self.add_product(state.hidden[start:stop], attended, self._weights.layers[layer].o)

    def gate_up_proj(self, layer: int, state: TaskState, start: int, stop: int) -> None:
        """Norm, gate and up projections, silu(gate) x up."""
        weights = self._weights.layers[layer]
        assert isinstance(weights.mlp, Mlp)
        for low, high in self._pieces(start, stop):
            normed = rms_norm(state.hidden[low:high], self._norm_size, weights.post_norm, self.shape.norm_eps)
            gate, up = weights.mlp.gate_up.times(normed).chunk(2, dim=1)
            torch.mul(silu(gate, inplace=True), up, out=state.middle[low:high])

    def down_proj(self, layer: int, state: TaskState, start: int, stop: int) -> None:
        """Down projection, added to the residual stream."""
        mlp = self._weights.layers[layer].mlp
        assert isinstance(mlp, Mlp)
        self.add_product(state.hidden[start:stop], state.middle[start:stop], mlp.down)

    def head(self, state: TaskState) -> None:
        """Final norm and head on the last rows only: state.logits [sequences that end their prompt, vocabulary]."""
        last = state.hidden.index_select(0, state.last_rows)
        normed = rms_norm(last, self._norm_size, self._weights.norm, self.shape.norm_eps)
        state.logits = torch.mm(normed, self._weights.head.t()).float()

    def add_product(self, hidden: torch.Tensor, rows: torch.Tensor, weight: Matrix) -> None:
        """Add rows [n, in] times the weight to hidden [n, out], over all ranks."""
        if self._all_reduce is None:
            weight.add_to(hidden, rows)
        else:
            self.add_partial(hidden, weight.times(rows))

    def add_partial(self, hidden: torch.Tensor, partial: torch.Tensor) -> None:
        """Add this rank's share of a sum, together with that of the other ranks."""
        if self._all_reduce is not None:
            self._all_reduce(partial)
        hidden.add_(partial)

    def _pieces(self, start: int, stop: int) -> list[tuple[int, int]]:
        step = self._rows_at_once or stop - start
        return [(low, min(low + step, stop)) for low in range(start, stop, step)]
