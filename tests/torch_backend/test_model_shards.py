"""Each architecture's parts, in one process: two threads as ranks, their sums by hand."""

import threading
from collections.abc import Callable

import pytest
import torch

from engine.core.batch import Sequence
from engine.torch_backend.models.catalogue import load_model
from engine.torch_backend.models.decoder import Decoder
from engine.torch_backend.models.shard import Shard
from tests.torch_backend.engine_run import logits_of, new_cache, plan, prompt

SHARES = (Sequence("a", 0, 23), Sequence("b", 0, 9))
TOKENS = {"a": prompt(23), "b": prompt(9, seed=2)}


class Sums:
    """all_reduce of ranks that are threads."""

    def __init__(self, ranks: int) -> None:
        self._parts: dict[int, torch.Tensor] = {}
        self._together = threading.Barrier(ranks, timeout=120)

    def of(self, rank: int) -> Callable[[torch.Tensor], None]:
        def all_reduce(tensor: torch.Tensor) -> None:
            self._parts[rank] = tensor.clone()
            self._together.wait()
            tensor.copy_(torch.stack([self._parts[key] for key in sorted(self._parts)]).sum(0))
            self._together.wait()

        return all_reduce


def logits(model: Decoder) -> torch.Tensor:
    cache = new_cache(model)
    for share in SHARES:
        cache.allocate(share.request_id, share.new_tokens)
    return logits_of(plan(model, cache, SHARES, TOKENS))


@pytest.mark.parametrize("name", ["cpu_tiny", "cpu_qwen2", "cpu_qwen3", "cpu_qwen3_moe"])
def test_the_parts_of_every_architecture_make_up_the_whole(name: str) -> None:
    sums, found = Sums(2), dict[int, torch.Tensor]()
    parts = [load_model(name, shard=Shard(rank, 2), all_reduce=sums.of(rank)) for rank in range(2)]

    def run(rank: int) -> None:
        found[rank] = logits(parts[rank])

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert torch.equal(found[0], found[1])
    torch.testing.assert_close(found[0], logits(load_model(name)), rtol=1e-4, atol=1e-5)
