"""Which kernel is chosen, with kernels that are there, not there, or broken."""

import logging
from collections.abc import Callable

import pytest
import torch

from engine.model.catalogue import load_shape
from engine.model.shape import ModelLoadError
from engine.torch_backend import attention_choice
from engine.torch_backend.attention_choice import FASTER, check_kernel, choose_attention
from engine.torch_backend.attention_kernels import AttentionKernel, KeysAndValues, Lengths, Sdpa

SHAPE = load_shape("cpu_tiny")
CPU, CUDA = torch.device("cpu"), torch.device("cuda")


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
    kinds = zip(FASTER, found, strict=True)
    faster = {name: there(kind, name) if kind else absent(name) for name, kind in kinds}
    with caplog.at_level(logging.INFO):
        assert choose_attention("auto", SHAPE, CUDA, torch.bfloat16, faster).name == chosen
    for words in [*said, f"attention is computed by {chosen} (asked for: auto)"]:
        assert words in caplog.text


@pytest.mark.parametrize(("device", "dtype"), [(CPU, torch.float32), (CPU, torch.bfloat16), (CUDA, torch.float32)])
def test_auto_is_sdpa_on_a_cpu_and_in_full_precision(device: torch.device, dtype: torch.dtype) -> None:
    faster = {name: there(Right, name) for name in FASTER}
    assert choose_attention("auto", SHAPE, device, dtype, faster).name == "sdpa"


@pytest.mark.parametrize("name", list(FASTER))
def test_the_one_asked_for_is_taken_and_sdpa_always_is(name: str) -> None:
    faster = {name: there(Right, name) for name in FASTER}
    assert choose_attention(name, SHAPE, CUDA, torch.float16, faster).name == name
    assert choose_attention("sdpa", SHAPE, CUDA, torch.float16, faster).name == "sdpa"


@pytest.mark.parametrize(
    ("asked", "device", "dtype", "sentence"),
    [
        ("flash3", CUDA, torch.bfloat16, "attention flash3 is not known, only auto, sdpa, torch_varlen, flash_attn, f"),
        ("flash_attn", CPU, torch.bfloat16, "attention flash_attn runs on CUDA only, not on cpu"),
        ("flash_attn", CUDA, torch.float32, "attention flash_attn computes in bfloat16 and float16 only, not in float"),
        ("torch_varlen", CUDA, torch.bfloat16, r"attention torch_varlen fails here \(RuntimeError: no kernel image"),
        ("flash_attn", CUDA, torch.bfloat16, r"attention flash_attn is not installed \(No module named 'flash_attn'"),
        ("flashinfer", CUDA, torch.bfloat16, "attention flashinfer computes something else than sdpa here"),
    ],
)
def test_what_cannot_be_used_is_one_sentence(
    asked: str, device: torch.device, dtype: torch.dtype, sentence: str
) -> None:
    faster = {
        "torch_varlen": there(Broken, "torch_varlen"),
        "flash_attn": absent("flash_attn"),
        "flashinfer": there(Wrong, "flashinfer"),
    }
    with pytest.raises(ModelLoadError, match=sentence):
        choose_attention(asked, SHAPE, device, dtype, faster)
