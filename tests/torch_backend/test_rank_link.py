"""What joins ranks, on GPUs that are none."""

import pytest
import torch
import torch.distributed as dist

from engine.torch_backend import rank_link
from tests.fakes.cuda_stand_in import OnTheCPU


def test_ranks_on_gpus_have_a_device_each_and_are_connected_before_any_task(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[object] = []

    def init(backend: str, *, init_method: str, rank: int, world_size: int, **_: object) -> None:
        done.append((backend, init_method, rank, world_size))

    monkeypatch.setattr(torch.cuda, "set_device", lambda device: done.append(device))
    monkeypatch.setattr(dist, "init_process_group", init)
    monkeypatch.setattr(dist, "all_reduce", lambda tensor: done.append(tensor.tolist()))
    with OnTheCPU():
        rank_link.join_group("cuda", 1, 4, "/folder/store")
    assert done == [1, ("nccl", "file:///folder/store", 1, 4), [1.0]]
    assert [rank_link.device_of("cuda", rank) for rank in range(2)] == ["cuda:0", "cuda:1"]
