"""Kernels that a GPU machine may have, with stand-ins that compute what their documentation says, by definition."""

import sys
import types
from collections.abc import Callable

import pytest
import torch

from engine.core.batch import Sequence
from engine.model.segments import Segment
from engine.torch_backend.attention_avx512 import Avx512
from engine.torch_backend.attention_kernels import (
    AttentionKernel,
    FlashAttention,
    FlashInfer,
    Lengths,
    Sdpa,
    TorchVarlen,
)
from engine.torch_backend.models.decoder import Decoder
from tests.torch_backend.engine_run import logits_of, new_cache, plan, prompt
from tests.torch_backend.families import Family
from tests.torch_backend.test_attention import by_definition
from tests.torch_backend.test_attention_avx512 import needs_avx512


def varlen(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    q_ends: torch.Tensor,
    k_ends: torch.Tensor,
    most_q: int,
    most_k: int,
) -> torch.Tensor:
    """Causal attention of sequences that lie one after the other."""
    assert q_ends.dtype == k_ends.dtype == torch.int32
    rows, positions = q_ends.diff().tolist(), k_ends.diff().tolist()
    assert (q_ends[0], most_q, most_k, sum(rows), sum(positions)) == (0, max(rows), max(positions), len(q), len(k))
    parts = zip(q.split(rows), k.split(positions), v.split(positions), strict=True)
    return torch.cat([by_definition(*part) for part in parts]).to(q.dtype)


def torch_varlen(*given: object, window_size: tuple[int, int], enable_gqa: bool) -> torch.Tensor:
    assert window_size == (-1, 0)
    assert enable_gqa
    return varlen(*given)  # type: ignore[arg-type]


def flash_attn(*given: object, causal: bool) -> torch.Tensor:
    assert causal
    return varlen(*given)  # type: ignore[arg-type]


def flashinfer(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    assert causal
    return by_definition(q, k, v).to(q.dtype)


def stand_in(monkeypatch: pytest.MonkeyPatch, module: str, name: str, function: Callable[..., object]) -> None:
    made = types.ModuleType(module)
    setattr(made, name, function)
    monkeypatch.setitem(sys.modules, module, made)


@pytest.fixture(params=[Sdpa, TorchVarlen, FlashAttention, FlashInfer, pytest.param(Avx512, marks=needs_avx512)])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AttentionKernel:
    stand_in(monkeypatch, "torch.nn.attention.varlen", "varlen_attn", torch_varlen)
    stand_in(monkeypatch, "flash_attn", "flash_attn_varlen_func", flash_attn)
    stand_in(monkeypatch, "flashinfer", "single_prefill_with_kv_cache", flashinfer)
    made: AttentionKernel = request.param()
    return made


def test_lengths_of_spans() -> None:
    spans = [(Segment("a", 0, 10, 5, True), 4, 10), (Segment("b", 10, 3, 0, True), 0, 2)]
    assert Lengths.of(spans) == Lengths((6, 2), (15, 2))
    lengths = Lengths.of(spans, torch.device("cpu"))
    assert lengths.row_ends is not None
    assert lengths.position_ends is not None
    assert (lengths.row_ends.tolist(), lengths.position_ends.tolist()) == ([0, 6, 8], [0, 15, 17])


def test_each_sequence_sees_its_own_positions(kernel: AttentionKernel) -> None:
    generator = torch.Generator().manual_seed(0)
    lengths = Lengths.of(
        [(Segment("a", 0, 6, 3, True), 1, 6), (Segment("b", 6, 1, 8, True), 0, 1)], torch.device("cpu")
    )
    queries = torch.randn(6, 4, 16, generator=generator)
    cached = [
        (torch.randn(count, 2, 16, generator=generator), torch.randn(count, 2, 16, generator=generator))
        for count in (9, 9)
    ]
    want = torch.cat([by_definition(queries[:5], *cached[0]), by_definition(queries[5:], *cached[1])])
    kernel(queries, iter(cached), lengths)
    torch.testing.assert_close(queries.double(), want, rtol=1e-4, atol=1e-5)


def test_a_batch_with_contexts_is_computed_alike(kernel: AttentionKernel, family: Family) -> None:
    tokens = {"a": prompt(23), "b": prompt(12, seed=2)}

    def logits(model: Decoder) -> torch.Tensor:
        cache = new_cache(model)
        for name, ids in tokens.items():
            cache.allocate(name, len(ids))
        with torch.inference_mode():
            for operator in plan(model, cache, [Sequence("a", 0, 9, last=False)], tokens).operators:
                operator.run()
        return logits_of(plan(model, cache, [Sequence("a", 9, 14), Sequence("b", 0, 12)], tokens))

    other = Decoder.__new__(type(family.model))
    other.__dict__.update(family.model.__dict__, attention_kernel=kernel)
    torch.testing.assert_close(logits(other), logits(family.model), rtol=1e-4, atol=1e-5)
