"""Both ways of keeping a weight give the same products; the packed one is taken where torch has it."""

import pytest
import torch

from engine.torch_backend.models.matrix import PackedMatrix, PlainMatrix, can_pack, matrix

needs_packing = pytest.mark.skipif(not can_pack(torch.empty(1, 1)), reason="this torch has no packed products")


@pytest.mark.parametrize("rows", [1, 3, 17, 64, 600])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("kind", [PlainMatrix, pytest.param(PackedMatrix, marks=needs_packing)])
def test_products_and_sums_are_those_of_the_definition(kind: type, biased: bool, rows: int) -> None:
    generator = torch.Generator().manual_seed(rows)
    weight = torch.randn(24, 40, generator=generator)
    bias = torch.randn(24, generator=generator) if biased else None
    given = torch.randn(rows, 40, generator=generator)
    hidden = torch.randn(rows, 24, generator=generator)
    expected = given.double() @ weight.double().t() + (0 if bias is None else bias.double())
    kept = kind(weight, bias)
    torch.testing.assert_close(kept.times(given).double(), expected, rtol=1e-5, atol=1e-5)
    into = hidden.clone()
    kept.add_to(into, given)
    torch.testing.assert_close(into.double(), hidden.double() + expected, rtol=1e-5, atol=1e-5)


@needs_packing
def test_rows_may_be_a_strided_part_of_a_larger_tensor() -> None:
    weight, wide = torch.randn(24, 40), torch.randn(9, 80)
    torch.testing.assert_close(PackedMatrix(weight).times(wide[2:7, :40]), wide[2:7, :40] @ weight.t())


def test_float32_on_a_cpu_is_packed_and_bfloat16_is_not() -> None:
    assert isinstance(matrix(torch.empty(4, 4)), PackedMatrix if can_pack(torch.empty(1, 1)) else PlainMatrix)
    assert isinstance(matrix(torch.empty(4, 4, dtype=torch.bfloat16)), PlainMatrix)


def test_without_the_operators_a_weight_stays_as_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert isinstance(matrix(torch.empty(4, 4)), PlainMatrix)
