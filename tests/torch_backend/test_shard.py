import threading
from pathlib import Path

import pytest
import torch

from engine.core.batch import Sequence
from engine.model.catalogue import load_shape
from engine.model.shape import ModelLoadError
from engine.torch_backend.models.catalogue import load_model
from engine.torch_backend.models.shard import Shard
from tests.torch_backend.engine_run import logits_of, new_cache, plan, prompt
from tests.torch_backend.families import write_family


class SummingThreads:
    """An all-reduce of threads of one process."""

    def __init__(self, ranks: int) -> None:
        self._barrier = threading.Barrier(ranks)
        self._parts: dict[int, torch.Tensor] = {}

    def of(self, rank: int) -> object:
        def all_reduce(partial: torch.Tensor) -> None:
            self._parts[rank] = partial.clone()
            self._barrier.wait(120)
            partial.copy_(sum(self._parts[number] for number in sorted(self._parts)))
            self._barrier.wait(120)

        return all_reduce


@pytest.mark.parametrize("dummy", [False, True])
@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3_moe"])
def test_the_parts_of_two_ranks_give_the_logits_of_one(name: str, dummy: bool, tmp_path: Path) -> None:
    folder = str(write_family(name, tmp_path))
    tokens = {"a": prompt(40)}

    def logits(shard: Shard, all_reduce: object) -> torch.Tensor:
        model = load_model(folder, dummy=dummy, shard=shard, all_reduce=all_reduce)  # type: ignore[arg-type]
        cache = new_cache(model)
        cache.allocate("a", 40)
        return logits_of(plan(model, cache, [Sequence("a", 0, 40)], tokens))

    sums = SummingThreads(2)
    found: dict[int, torch.Tensor] = {}

    def run(rank: int) -> None:
        found[rank] = logits(Shard(rank, 2), sums.of(rank))

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    alone = logits(Shard(), None)
    torch.testing.assert_close(found[0], alone, rtol=1e-4, atol=1e-5)
    assert torch.equal(found[0], found[1])


def test_what_cannot_be_split_is_named() -> None:
    with pytest.raises(ModelLoadError, match="model cpu_demo: heads 4 cannot be split over 3 ranks"):
        Shard(0, 3).shape(load_shape("cpu_demo"))
    with pytest.raises(ModelLoadError, match="model cpu_demo: kv_heads 2 cannot be split over 4 ranks"):
        Shard(0, 4).shape(load_shape("cpu_demo"))
    with pytest.raises(ValueError, match="rank must be from 0 to 1, got 2"):
        Shard(2, 2)
