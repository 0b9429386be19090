"""The kernels that can compute an attention operator, behind one signature.

Each takes the query rows of one operator, [rows, heads, head_dim], sequence after sequence; keys and values of each
sequence in turn, [positions, kv_heads, head_dim]; and their lengths. What the rows attended to replaces them. A row
sees all positions up to its own: the last row of a sequence sees its last position.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from inspect import signature
from itertools import accumulate
from typing import Any, Protocol

import torch

from engine.model.granularity import Span
from engine.torch_backend.attention import attend


@dataclass(frozen=True, slots=True)
class Lengths:
    """Query rows and visible positions of each sequence; made once a task, read by every layer.

    row_ends, position_ends: their running sums from 0 on, [sequences + 1] of int32 on the model's device; None for a
        kernel that takes one sequence at a time.
    """

    rows: tuple[int, ...]
    positions: tuple[int, ...]
    row_ends: torch.Tensor | None = None
    position_ends: torch.Tensor | None = None

    @staticmethod
    def of(spans: Sequence[Span], ends_on: torch.device | None = None) -> "Lengths":
        """Lengths of query rows first..stop of each segment, with their running sums where these are wanted."""
        rows = tuple(stop - first for _, first, stop in spans)
        positions = tuple(segment.context_tokens + stop for segment, _, stop in spans)
        if ends_on is None:
            return Lengths(rows, positions)
        return Lengths(rows, positions, _ends(rows, ends_on), _ends(positions, ends_on))


def _ends(lengths: Sequence[int], device: torch.device) -> torch.Tensor:
    return torch.tensor(list(accumulate(lengths, initial=0)), dtype=torch.int32, device=device)


KeysAndValues = Iterator[tuple[torch.Tensor, torch.Tensor]]
"""Of each sequence in turn. Read one by one: what is not contiguous in the cache is gathered only when it is used."""


class AttentionKernel(Protocol):
    """One way to compute attention."""

    @property
    def name(self) -> str:
        """What a user asks for."""
        ...

    @property
    def joins(self) -> bool:
        """Whether it takes all sequences in one launch, and so needs the running sums of their lengths."""
        ...

    def __call__(self, queries: torch.Tensor, read: KeysAndValues, lengths: Lengths) -> None:
        """Replace the query rows by what they attended to."""
        ...


class Sdpa:
    """torch's scaled_dot_product_attention, or on a CPU its parts: any device, any number format."""

    name = "sdpa"
    joins = False

    def __call__(self, queries: torch.Tensor, read: KeysAndValues, lengths: Lengths) -> None:
        """One sequence after the other."""
        for part, (keys, values) in zip(torch.split(queries, list(lengths.rows)), read, strict=True):
            part.copy_(attend(part, keys, values))


class TorchVarlen:
    """torch.nn.attention.varlen: FlashAttention over sequences of different lengths, part of torch."""

    name = "torch_varlen"
    joins = True

    def __init__(self) -> None:
        """Raises ImportError where this torch has no such function."""
        from torch.nn.attention.varlen import varlen_attn

        self._attend: Callable[..., Any] = varlen_attn
        # torch 2.11 takes fewer key heads than query heads unasked, 2.12 wants to be told; 2.10 knows no window.
        known = signature(varlen_attn).parameters
        self._causal = {"window_size": (-1, 0)} if "window_size" in known else {"is_causal": True}
        self._told_of_groups = "enable_gqa" in known

    def __call__(self, queries: torch.Tensor, read: KeysAndValues, lengths: Lengths) -> None:
        """All sequences in one launch."""
        keys, values = _joined(read)
        grouped = {"enable_gqa": queries.shape[1] != keys.shape[1]} if self._told_of_groups else {}
        attended = self._attend(
            queries,
            keys,
            values,
            lengths.row_ends,
            lengths.position_ends,
            max(lengths.rows),
            max(lengths.positions),
            **self._causal,
            **grouped,
        )
        queries.copy_(attended)


class FlashAttention:
    """The package flash-attn."""

    name = "flash_attn"
    joins = True

    def __init__(self) -> None:
        """Raises ImportError where it is not installed."""
        self._attend: Callable[..., Any] = import_module("flash_attn").flash_attn_varlen_func

    def __call__(self, queries: torch.Tensor, read: KeysAndValues, lengths: Lengths) -> None:
        """All sequences in one launch."""
        keys, values = _joined(read)
        attended = self._attend(
            queries,
            keys,
            values,
            lengths.row_ends,
            lengths.position_ends,
            max(lengths.rows),
            max(lengths.positions),
            causal=True,
        )
        queries.copy_(attended)


class FlashInfer:
    """The package flashinfer."""

    name = "flashinfer"
    joins = False

    def __init__(self) -> None:
        """Raises ImportError where it is not installed."""
        self._attend: Callable[..., Any] = import_module("flashinfer").single_prefill_with_kv_cache

    def __call__(self, queries: torch.Tensor, read: KeysAndValues, lengths: Lengths) -> None:
        """One sequence after the other: its kernels for batches keep a plan between calls."""
        for part, (keys, values) in zip(torch.split(queries, list(lengths.rows)), read, strict=True):
            part.copy_(self._attend(part, keys, values, causal=True))


def _joined(read: KeysAndValues) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values of all sequences in a row; views where there is one sequence."""
    keys, values = zip(*read, strict=True)
    return (keys[0], values[0]) if len(keys) == 1 else (torch.cat(keys), torch.cat(values))
