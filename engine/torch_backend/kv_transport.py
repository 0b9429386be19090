"""The seam between two instances: how the KV of a request gets from one KV cache into another.

`engine.serving.shared_memory_transport` fills it with memory that processes of one machine share. A transport over a
network (NIXL) fills it likewise: `send` may copy, or register memory that the other side reads; the blocks it reads are
freed once it returns.
"""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import torch

from engine.model.shape import ModelShape

LayerKV = tuple[torch.Tensor, torch.Tensor]
"""Keys and values of one layer, [tokens, kv_heads, head_dim] each."""


class KVHandOverError(Exception):
    """KV could not be sent or received; the message is a sentence."""


@dataclass(frozen=True, slots=True)
class KVLayout:
    """What is moved: both sides state it, and must agree. dtype: torch's name without "torch."."""

    layers: int
    tokens: int
    kv_heads: int
    head_dim: int
    dtype: str

    @staticmethod
    def of(shape: ModelShape, tokens: int, dtype: torch.dtype) -> "KVLayout":
        """The first `tokens` positions of a request of this model."""
        return KVLayout(shape.layers, tokens, shape.kv_heads, shape.head_dim, str(dtype).removeprefix("torch."))

    @property
    def torch_dtype(self) -> torch.dtype:
        """As torch has it."""
        found = getattr(torch, self.dtype)
        assert isinstance(found, torch.dtype)
        return found

    @property
    def layer_shape(self) -> tuple[int, int, int]:
        """[tokens, kv_heads, head_dim]: the keys, or the values, of one layer."""
        return (self.tokens, self.kv_heads, self.head_dim)

    @property
    def size_bytes(self) -> int:
        """Of all layers, keys and values."""
        return 2 * self.layers * self.tokens * self.kv_heads * self.head_dim * self.torch_dtype.itemsize


@dataclass(frozen=True, slots=True)
class ReceivedKV:
    """layers: in order; to be copied before the transport's context ends. sampler: as it was given to `send`."""

    layers: Iterator[LayerKV]
    sampler: bytes


class KVTransport(Protocol):
    """Moves KV between instances. Called on one thread of each; any call raises KVHandOverError."""

    def send(self, layout: KVLayout, layers: Iterable[LayerKV], sampler: bytes, to: str) -> str:
        """Take the KV away; returns the ticket by which `receive` finds it.

        sampler: state of the request's own randomness, empty for a greedy one. to: name of the decode instance.
        """
        ...

    def receive(self, ticket: str, layout: KVLayout) -> AbstractContextManager[ReceivedKV]:
        """What was sent under this ticket, checked against the layout expected."""
        ...

    def free(self, ticket: str) -> None:
        """What was sent under this ticket is wanted no more. Nothing happens when it is gone already."""
        ...

    def close(self) -> None:
        """Free all that this side has sent and nobody freed."""
        ...
