"""Which kernel computes attention: the one asked for, or the best that works on this machine."""

import logging
from collections.abc import Callable, Mapping
from typing import Final

import torch

from engine.model.segments import Segment
from engine.model.shape import ModelLoadError, ModelShape
from engine.torch_backend.attention_avx512 import HEAD_DIMS, Avx512, CannotCompileError
from engine.torch_backend.attention_kernels import (
    AttentionKernel,
    FlashAttention,
    FlashInfer,
    Lengths,
    Sdpa,
    TorchVarlen,
)

LOG = logging.getLogger(__name__)
FASTER: Final[Mapping[str, Callable[[], AttentionKernel]]] = {
    "torch_varlen": TorchVarlen,
    "flash_attn": FlashAttention,
    "flashinfer": FlashInfer,
    "avx512": Avx512,
}
"""What `auto` tries before sdpa, in this order: avx512 on a CPU in float32, the others on CUDA in half precision."""
ATTENTIONS: Final = ("auto", "sdpa", *FASTER)


class _UnfitError(Exception):
    """A kernel cannot be used here; the message completes "attention X ..."."""


def choose_attention(
    asked: str,
    shape: ModelShape,
    device: torch.device,
    dtype: torch.dtype,
    faster: Mapping[str, Callable[[], AttentionKernel]] = FASTER,
) -> AttentionKernel:
    """The kernel; the log says which. Each but sdpa is tried on a few rows first: what is installed need not fit this
    GPU or this torch.

    asked: one of `ATTENTIONS`. Raises ModelLoadError when that one cannot be used; `auto` always finds one.
    """
    if asked not in ATTENTIONS:
        raise ModelLoadError(f"attention {asked} is not known, only {', '.join(ATTENTIONS)} are")
    kernel = _first_that_works(asked, shape, device, dtype, faster)
    LOG.info("attention is computed by %s (asked for: %s)", kernel.name, asked)
    return kernel


def _first_that_works(
    asked: str,
    shape: ModelShape,
    device: torch.device,
    dtype: torch.dtype,
    faster: Mapping[str, Callable[[], AttentionKernel]],
) -> AttentionKernel:
    if asked == "sdpa":
        return Sdpa()
    for name in faster if asked == "auto" else (asked,):
        try:
            return _tried(name, faster[name], shape, device, dtype)
        except _UnfitError as error:
            if asked != "auto":
                raise ModelLoadError(f"attention {name} {error}") from error
            LOG.info("attention %s %s", name, error)
    return Sdpa()


def _tried(
    name: str, make: Callable[[], AttentionKernel], shape: ModelShape, device: torch.device, dtype: torch.dtype
) -> AttentionKernel:
    (_require_core if name == "avx512" else _require_gpu)(shape, device, dtype)
    try:
        kernel = make()
    except ImportError as error:
        raise _UnfitError(f"is not installed ({error})") from error
    except CannotCompileError as error:
        raise _UnfitError(str(error)) from error
    check_kernel(kernel, shape, device, dtype)
    return kernel


def _require_gpu(shape: ModelShape, device: torch.device, dtype: torch.dtype) -> None:
    del shape
    if device.type != "cuda":
        raise _UnfitError(f"runs on CUDA only, not on {device.type}")
    if dtype.itemsize != 2:
        raise _UnfitError(f"computes in bfloat16 and float16 only, not in {_name(dtype)}")


def _require_core(shape: ModelShape, device: torch.device, dtype: torch.dtype) -> None:
    if device.type != "cpu":
        raise _UnfitError(f"runs on CPUs only, not on {device.type}")
    if dtype is not torch.float32:
        raise _UnfitError(f"computes in float32 only, not in {_name(dtype)}")
    if shape.head_dim not in HEAD_DIMS:
        raise _UnfitError(f"takes heads of 16, 32, ... {HEAD_DIMS[-1]} numbers, not of {shape.head_dim}")
    if torch.get_num_threads() != 1:
        raise _UnfitError(f"computes on one thread only, not on {torch.get_num_threads()}")
    if torch.backends.cpu.get_cpu_capability() != "AVX512":
        raise _UnfitError("needs a CPU with AVX-512")


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def check_kernel(kernel: AttentionKernel, shape: ModelShape, device: torch.device, dtype: torch.dtype) -> None:
    """Let a kernel and sdpa attend to the same random rows. Raises an error when it fails or they disagree."""
    generator = torch.Generator().manual_seed(0)
    # Rows of their own, rows after others, and enough of them for a kernel that takes keys by stretches.
    spans = [
        (Segment("a", 0, 9, 0, True), 0, 9),
        (Segment("b", 9, 15, 20, True), 0, 15),
        (Segment("c", 24, 40, 600, True), 0, 40),
    ]
    lengths = Lengths.of(spans, device)

    def draw(rows: int, heads: int) -> torch.Tensor:
        return torch.randn(rows, heads, shape.head_dim, generator=generator).to(device, dtype)

    queries = draw(sum(lengths.rows), shape.heads)
    cached = [(draw(count, shape.kv_heads), draw(count, shape.kv_heads)) for count in lengths.positions]
    wanted = queries.clone()
    Sdpa()(wanted, iter(cached), lengths)
    try:
        kernel(queries, iter(cached), lengths)
    except (RuntimeError, TypeError, ValueError, NotImplementedError) as error:
        # Whatever a foreign kernel raises for a GPU or a shape it was not built for.
        raise _UnfitError(f"fails here ({type(error).__name__}: {str(error).splitlines()[0]})") from error
    tolerance = 1e-3 if dtype is torch.float32 else 0.05
    if not torch.allclose(queries, wanted, rtol=tolerance, atol=tolerance):
        raise _UnfitError("computes something else than sdpa here")
