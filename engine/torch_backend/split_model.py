"""A model of one rank or several: all of it, or rank 0's part with the other ranks in processes of their own."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from engine.model.catalogue import load_shape
from engine.model.shape import ModelLoadError
from engine.torch_backend.models.catalogue import load_model
from engine.torch_backend.models.decoder import Decoder
from engine.torch_backend.models.shard import Shard
from engine.torch_backend.other_rank import RankStartError
from engine.torch_backend.rank_link import all_reduce, device_of
from engine.torch_backend.rank_messages import ModelChoice
from engine.torch_backend.settings import ExecutorSettings
from engine.torch_backend.tensor_parallel import RankGroup


@contextmanager
def load_ranks(
    choice: ModelChoice,
    ranks: int,
    executor: ExecutorSettings,
    on_lost: Callable[[str], None],
    first_cpu: int | None = None,
) -> Iterator[tuple[Decoder, RankGroup | None]]:
    """The model and, with two ranks or more, the others; they end with the context.

    on_lost, first_cpu: of `RankGroup.launch`. Raises ModelLoadError with one sentence.
    """
    if ranks == 1:
        if choice.device.startswith("cuda:"):
            torch.cuda.set_device(choice.device)
        yield _load(choice, choice.device, Shard(), None), None
        return
    _check(choice, ranks)
    group: RankGroup | None = None
    try:
        group = RankGroup.launch(ranks, choice, executor, on_lost, first_cpu)
        model = _load(choice, device_of(choice.device, 0), Shard(0, ranks), all_reduce)
        group.wait_ready()
        yield model, group
    except RankStartError as error:
        raise ModelLoadError(str(error)) from error
    finally:
        if group is not None:
            group.close()


def _load(choice: ModelChoice, device: str, shard: Shard, summed: Callable[[torch.Tensor], None] | None) -> Decoder:
    return load_model(
        choice.name_or_folder, device, choice.dtype, choice.dummy, choice.seed, shard, summed, choice.attention
    )


def _check(choice: ModelChoice, ranks: int) -> None:
    """What can be refused before processes are started."""
    Shard(0, ranks).shape(load_shape(choice.name_or_folder))
    if choice.device == "cuda" and torch.cuda.device_count() < ranks:
        have = torch.cuda.device_count()
        raise ModelLoadError(f"--tensor-parallel {ranks} needs as many CUDA devices, this machine has {have}")
