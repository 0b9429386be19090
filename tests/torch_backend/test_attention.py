import pytest
import torch

from engine.core.batch import Sequence
from engine.torch_backend.attention import MASKED_ROWS, attend_cpu, attend_cuda
from engine.torch_backend.models.catalogue import load_model
from engine.torch_backend.models.llama import Llama
from tests.torch_backend.engine_run import logits_of, new_cache, plan, prompt


def by_definition(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Row by row and head by head, in double precision."""
    rows, heads, head_dim = queries.shape
    context, group = keys.shape[0] - rows, heads // keys.shape[1]
    out = torch.empty(rows, heads, head_dim, dtype=torch.double)
    for row in range(rows):
        for head in range(heads):
            seen = keys[: context + row + 1, head // group].double()
            weights = torch.softmax(seen @ queries[row, head].double() / head_dim**0.5, dim=0)
            out[row, head] = weights @ values[: context + row + 1, head // group].double()
    return out


@pytest.mark.parametrize(
    ("rows", "context"),
    [
        (1, 0),
        (1, 9),
        (5, 0),
        (5, 1),
        (40, 33),
        (MASKED_ROWS - 1, 20),
        (MASKED_ROWS, 1),
        (MASKED_ROWS, 70),
        (300, 0),
        (300, 37),
        (256, 128),
    ],
)
@pytest.mark.parametrize("attend", [attend_cpu, attend_cuda])
def test_rows_see_their_context_and_themselves(rows: int, context: int, attend: object) -> None:
    generator = torch.Generator().manual_seed(rows)
    cache = torch.randn(context + rows + 3, 2, 2, 16, generator=generator)
    keys, values = cache[: context + rows, 0], cache[: context + rows, 1]  # strided, as views of a cache may be
    queries = torch.randn(rows, 4, 16, generator=generator)
    got = attend(queries, keys, values)  # type: ignore[operator]
    torch.testing.assert_close(got.double(), by_definition(queries, keys, values), rtol=1e-4, atol=1e-5)


def test_large_scores_do_not_overflow_where_two_parts_are_merged() -> None:
    generator = torch.Generator().manual_seed(0)
    keys, values = torch.randn(2, 400, 1, 16, generator=generator)
    queries = 400 * torch.randn(300, 1, 16, generator=generator)
    torch.testing.assert_close(
        attend_cpu(queries, keys, values).double(), by_definition(queries, keys, values), rtol=1e-3, atol=1e-3
    )


def test_bfloat16_stays_near_float32(tiny: Llama) -> None:
    half = load_model("cpu_tiny", dtype="bfloat16")
    logits = []
    for model in (tiny, half):
        cache = new_cache(model)
        cache.allocate("a", 60)
        logits.append(logits_of(plan(model, cache, [Sequence("a", 0, 60)], {"a": prompt(60)})))
    assert (logits[0] - logits[1]).norm() / logits[0].norm() < 0.05
