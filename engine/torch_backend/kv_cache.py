"""The paged KV cache: block tensors, and each request's table of blocks."""

import math
from collections.abc import Set
from dataclasses import dataclass

import torch

from engine.model.shape import ModelShape
from engine.torch_backend.block_pool import BlockPool, KVExhaustedError

__all__ = ["KVCache", "KVExhaustedError", "KVMemoryError", "Slots"]

Slots = slice | torch.Tensor
"""Positions in the cache: a slice where the blocks lie side by side, else an index tensor."""


@dataclass(frozen=True, slots=True)
class _Table:
    """Blocks of a request. first_slot: where they lie side by side; index: all slots in order, where they do not."""

    blocks: tuple[int, ...]
    first_slot: int | None
    index: torch.Tensor | None


class KVMemoryError(RuntimeError):
    """The device has no room for the blocks asked for; the message states how much they need."""


class KVCache:
    """Keys and values of every layer, [slots, kv_heads, head_dim] each; slot = block x block_tokens + offset."""

    def __init__(
        self, shape: ModelShape, blocks: int, block_tokens: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        size = (blocks * block_tokens, shape.kv_heads, shape.head_dim)
        needed_bytes = 2 * shape.layers * math.prod(size) * dtype.itemsize
        try:
            self.keys = [torch.empty(size, device=device, dtype=dtype) for _ in range(shape.layers)]
            self.values = [torch.empty(size, device=device, dtype=dtype) for _ in range(shape.layers)]
        except RuntimeError as error:
            # torch has no narrower error on a CPU; an empty tensor fails for no other reason.
            raise KVMemoryError(
                f"{blocks} KV blocks of {block_tokens} tokens need {needed_bytes:,} bytes, more than {device} has"
            ) from error
        self.block_tokens = block_tokens
        self._device = device
        self._pool = BlockPool(blocks)
        self._tables: dict[str, _Table] = {}

    @property
    def free_blocks(self) -> int:
        """Blocks no request holds."""
        return self._pool.free_blocks

    @property
    def holders(self) -> Set[str]:
        """Requests that hold blocks."""
        return self._tables.keys()

    def allocate(self, request_id: str, tokens: int) -> None:
        """Give a request blocks for `tokens` positions. Raises KVExhaustedError; ValueError if it holds some."""
        if request_id in self._tables:
            raise ValueError(f"request {request_id} holds KV blocks already")
        blocks = self._pool.take(-(-tokens // self.block_tokens))
        try:
            self._tables[request_id] = self._table_of(blocks)
        except BaseException:
            self._pool.give_back(blocks)  # the device had no room for the index: nobody would free them
            raise

    def _table_of(self, blocks: tuple[int, ...]) -> _Table:
        if blocks[-1] - blocks[0] + 1 == len(blocks) and blocks == tuple(sorted(blocks)):
            return _Table(blocks, blocks[0] * self.block_tokens, None)
        starts = torch.tensor(blocks, dtype=torch.long).unsqueeze(1) * self.block_tokens
        return _Table(blocks, None, (starts + torch.arange(self.block_tokens)).flatten().to(self._device))

    def free(self, request_id: str) -> None:
        """Take a request's blocks back; nothing happens when it holds none."""
        table = self._tables.pop(request_id, None)
        if table is not None:
            self._pool.give_back(table.blocks)

    def slots(self, request_id: str, start: int, stop: int) -> Slots:
        """Where positions start..stop of a request lie. Raises ValueError past the blocks it holds."""
        table = self._tables[request_id]
        if stop > len(table.blocks) * self.block_tokens:
            raise ValueError(
                f"request {request_id} needs {stop} KV positions, it holds {len(table.blocks) * self.block_tokens}"
            )
        if table.first_slot is not None:
            return slice(table.first_slot + start, table.first_slot + stop)
        assert table.index is not None
        return table.index[start:stop]

    def read(self, layer: int, request_id: str, stop: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of positions 0..stop, [stop, kv_heads, head_dim]: views where possible, else gathered."""
        where = self.slots(request_id, 0, stop)
        return self.keys[layer][where], self.values[layer][where]

    def write(self, layer: int, request_id: str, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Fill positions 0..n with keys and values that were computed elsewhere, [n, kv_heads, head_dim] each."""
        where = self.slots(request_id, 0, keys.shape[0])
        self.keys[layer][where] = keys.to(self._device)
        self.values[layer][where] = values.to(self._device)

    def check(self) -> None:
        """Raise AssertionError unless every block is free or held exactly once."""
        self._pool.check([table.blocks for table in self._tables.values()])
