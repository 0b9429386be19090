"""torch.nn.attention.varlen has changed its arguments with each release: what each is given."""

from collections.abc import Callable

import pytest
import torch

from engine.torch_backend.attention_kernels import Lengths, TorchVarlen

Call = dict[str, object]
TOLD: list[Call] = []


def of_2_10(*_: object, is_causal: bool = False) -> torch.Tensor:
    TOLD.append({"is_causal": is_causal})
    return torch.zeros(3, 4, 8)


def of_2_11(*_: object, window_size: tuple[int, int] = (-1, -1)) -> torch.Tensor:
    TOLD.append({"window_size": window_size})
    return torch.zeros(3, 4, 8)


def of_2_12(*_: object, window_size: tuple[int, int] = (-1, -1), enable_gqa: bool = False) -> torch.Tensor:
    TOLD.append({"window_size": window_size, "enable_gqa": enable_gqa})
    return torch.zeros(3, 4, 8)


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (of_2_10, {"is_causal": True}),
        (of_2_11, {"window_size": (-1, 0)}),
        (of_2_12, {"window_size": (-1, 0), "enable_gqa": True}),
    ],
)
def test_causal_attention_with_shared_key_heads_is_asked_for(
    function: Callable[..., torch.Tensor], told: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    TOLD.clear()
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", function)
    queries, cached = torch.ones(3, 4, 8), torch.ones(3, 2, 8)
    TorchVarlen()(queries, iter([(cached, cached)]), Lengths((3,), (3,)))
    assert [told] == TOLD
    assert not queries.any()
