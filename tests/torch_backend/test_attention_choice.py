"""Which kernel is chosen, with kernels that are there, not there, or broken."""

import logging
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from engine.model.catalogue import load_shape
from engine.model.shape import ModelLoadError
from engine.torch_backend import attention_choice
from engine.torch_backend.attention_avx512 import CannotCompileError
from engine.torch_backend.attention_choice import FASTER, check_kernel, choose_attention
from engine.torch_backend.attention_kernels import AttentionKernel, KeysAndValues, Lengths, Sdpa

SHAPE = load_shape("cpu_tiny")
CPU, CUDA = torch.device("cpu"), torch.device("cuda")
ON_CUDA = tuple(name for name in FASTER if name != "avx512")


class Right(Sdpa):
    def __init__(self, name: str) -> None:
        self.name = name


class Broken(Right):
    def __call__(self, queries: torch.Tensor, read: KeysAndValues, lengths: Lengths) -> None:
        raise RuntimeError("no kernel image is available\nfor this GPU")


class Wrong(Right):
    def __call__(self, queries: torch.Tensor, read: KeysAndValues, lengths: Lengths) -> None:
        super().__call__(queries, read, Lengths(lengths.rows, lengths.positions))
        queries.mul_(2)


def there(kind: type[Right], name: str) -> Callable[[], AttentionKernel]:
    return lambda: kind(name)


def absent(name: str) -> Callable[[], AttentionKernel]:
    def make() -> AttentionKernel:
        raise ImportError(f"No module named '{name}'")

    return make


@pytest.fixture(autouse=True)
def _checked_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no GPU in a test: the few rows that a kernel is tried on are computed here."""
    monkeypatch.setattr(
        attention_choice,
        "check_kernel",
        lambda kernel, shape, _device, dtype: check_kernel(kernel, shape, CPU, dtype),
    )
    # Hydra's quiet logging, in a test before, turns off every logger that there is.
    monkeypatch.setattr(attention_choice.LOG, "disabled", False)


@pytest.mark.parametrize(
    ("found", "chosen", "said"),
    [
        ((Right, Right, Right), "torch_varlen", []),
        ((None, Right, Right), "flash_attn", ["torch_varlen is not installed (No module named 'torch_varlen')"]),
        ((None, Broken, Right), "flashinfer", ["flash_attn fails here (RuntimeError: no kernel image is available)"]),
        ((Wrong, None, None), "sdpa", ["torch_varlen computes something else than sdpa here"]),
        ((None, None, None), "sdpa", ["flashinfer is not installed"]),
    ],
)
def test_auto_takes_the_first_that_works(
    found: tuple[type[Right] | None, ...], chosen: str, said: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    kinds = zip(ON_CUDA, found, strict=True)
    faster = {name: there(kind, name) if kind else absent(name) for name, kind in kinds}
    with caplog.at_level(logging.INFO):
        assert choose_attention("auto", SHAPE, CUDA, torch.bfloat16, faster).name == chosen
    for words in [*said, f"attention is computed by {chosen} (asked for: auto)"]:
        assert words in caplog.text


@pytest.mark.parametrize(
    ("device", "dtype", "capability", "chosen"),
    [
        (CPU, torch.float32, "AVX512", "avx512"),
        (CPU, torch.float32, "AVX2", "sdpa"),
        (CPU, torch.bfloat16, "AVX512", "sdpa"),
        (CUDA, torch.float32, "AVX512", "sdpa"),
    ],
)
def test_auto_off_the_gpus_number_formats(
    device: torch.device, dtype: torch.dtype, capability: str, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    faster = {name: there(Right, name) for name in FASTER}
    assert choose_attention("auto", SHAPE, device, dtype, faster).name == chosen


@pytest.mark.parametrize("name", ON_CUDA)
def test_the_one_asked_for_is_taken_and_sdpa_always_is(name: str) -> None:
    faster = {name: there(Right, name) for name in FASTER}
    assert choose_attention(name, SHAPE, CUDA, torch.float16, faster).name == name
    assert choose_attention("sdpa", SHAPE, CUDA, torch.float16, faster).name == "sdpa"


def test_avx512_computes_on_one_thread_and_in_whole_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    faster = {"avx512": there(Right, "avx512")}
    with pytest.raises(ModelLoadError, match=r"takes heads of 16, 32, \.\.\. 256 numbers, not of 24"):
        choose_attention("avx512", replace(SHAPE, head_dim=24), CPU, torch.float32, faster)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    with pytest.raises(ModelLoadError, match="computes on one thread only, not on 2"):
        choose_attention("avx512", SHAPE, CPU, torch.float32, faster)


@pytest.mark.parametrize(
    ("asked", "device", "dtype", "sentence"),
    [
        ("flash3", CUDA, torch.bfloat16, "attention flash3 is not known, only auto, sdpa, torch_varlen, flash_attn, f"),
        ("flash_attn", CPU, torch.bfloat16, "attention flash_attn runs on CUDA only, not on cpu"),
        ("flash_attn", CUDA, torch.float32, "attention flash_attn computes in bfloat16 and float16 only, not in float"),
        ("torch_varlen", CUDA, torch.bfloat16, r"attention torch_varlen fails here \(RuntimeError: no kernel image"),
        ("flash_attn", CUDA, torch.bfloat16, r"attention flash_attn is not installed \(No module named 'flash_attn'"),
        ("flashinfer", CUDA, torch.bfloat16, "attention flashinfer computes something else than sdpa here"),
        ("avx512", CUDA, torch.float32, "attention avx512 runs on CPUs only, not on cuda"),
        ("avx512", CPU, torch.bfloat16, "attention avx512 computes in float32 only, not in bfloat16"),
        ("avx512", CPU, torch.float32, "attention avx512 cannot be compiled: none of c99 is installed"),
    ],
)
def test_what_cannot_be_used_is_one_sentence(
    asked: str, device: torch.device, dtype: torch.dtype, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")

    def uncompiled() -> AttentionKernel:
        raise CannotCompileError("cannot be compiled: none of c99 is installed")

    faster = {
        "avx512": uncompiled,
        "torch_varlen": there(Broken, "torch_varlen"),
        "flash_attn": absent("flash_attn"),
        "flashinfer": there(Wrong, "flashinfer"),
    }
    with pytest.raises(ModelLoadError, match=sentence):
        choose_attention(asked, SHAPE, device, dtype, faster)
