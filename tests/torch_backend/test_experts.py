import pytest
import torch

from engine.torch_backend.models.experts import multiply_one_by_one, multiply_together, route, run_experts

ROWS, HIDDEN, INNER, EXPERTS, PER_TOKEN = 37, 16, 8, 6, 2


def draw(*size: int, seed: int) -> torch.Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed))


NORMED, ROUTER = draw(ROWS, HIDDEN, seed=1), draw(EXPERTS, HIDDEN, seed=2)
GATE_UP, DOWN = draw(EXPERTS, 2 * INNER, HIDDEN, seed=3), draw(EXPERTS, HIDDEN, INNER, seed=4)


def test_a_row_goes_to_its_likeliest_experts_with_their_shares() -> None:
    router = torch.eye(3)
    normed = torch.tensor([[3.0, 1.0, 2.0]]).log()  # shares 1/2, 1/6, 1/3
    weights, chosen = route(normed, router, 2, normalized=False)
    assert chosen.tolist() == [[0, 2]]
    torch.testing.assert_close(weights, torch.tensor([[1 / 2, 1 / 3]]))
    weights, _ = route(normed, router, 2, normalized=True)
    torch.testing.assert_close(weights, torch.tensor([[0.6, 0.4]]))


def test_every_row_gets_the_weighed_sum_of_its_experts() -> None:
    weights, chosen = route(NORMED, ROUTER, PER_TOKEN, normalized=True)
    want = torch.zeros(ROWS, HIDDEN)
    for row in range(ROWS):
        for weight, expert in zip(weights[row], chosen[row], strict=True):
            gate, up = (GATE_UP[expert] @ NORMED[row]).chunk(2)
            want[row] += weight * (DOWN[expert] @ (torch.nn.functional.silu(gate) * up))
    torch.testing.assert_close(run_experts(NORMED, weights, chosen, GATE_UP, DOWN), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("ends", [[7, 7, 20, 21, 30, 37], [0, 0, 0, 0, 0, 37], [37, 37, 37, 37, 37, 37]])
def test_both_ways_to_multiply_agree_also_where_experts_have_no_rows(dtype: torch.dtype, ends: list[int]) -> None:
    rows = torch.randperm(ROWS, generator=torch.Generator().manual_seed(5))
    given = (NORMED.to(dtype), rows, torch.tensor(ends, dtype=torch.int32), GATE_UP.to(dtype), DOWN.to(dtype))
    one, other = multiply_one_by_one(*given), multiply_together(*given)
    torch.testing.assert_close(one, other, rtol=1e-4 if dtype is torch.float32 else 2e-2, atol=1e-2)


def test_a_row_is_computed_the_same_whatever_rows_it_is_among() -> None:
    weights, chosen = route(NORMED, ROUTER, PER_TOKEN, normalized=True)
    together = run_experts(NORMED, weights, chosen, GATE_UP, DOWN)
    alone = torch.cat(
        [run_experts(NORMED[r : r + 1], weights[r : r + 1], chosen[r : r + 1], GATE_UP, DOWN) for r in range(ROWS)]
    )
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)
