"""The model an engine runs: all of it, or rank 0's part with the other ranks in processes of their own."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from engine.model.catalogue import load_shape
from engine.model.shape import ModelLoadError
from engine.serving.cpu_affinity import require_cpu
from engine.serving.settings import EngineSettings, SettingsError
from engine.torch_backend.models.catalogue import load_model
from engine.torch_backend.models.decoder import Decoder
from engine.torch_backend.models.shard import Shard
from engine.torch_backend.rank_link import all_reduce, device_of
from engine.torch_backend.rank_messages import ModelChoice
from engine.torch_backend.settings import ExecutorSettings
from engine.torch_backend.tensor_parallel import RankGroup, RankStartError


@contextmanager
def load_ranks(
    settings: EngineSettings, executor: ExecutorSettings, on_lost: Callable[[str], None]
) -> Iterator[tuple[Decoder, RankGroup | None]]:
    """The model and, with --tensor-parallel, the other ranks; they end with the context.

    on_lost: told once, from any thread, why the ranks cannot go on. Raises SettingsError.
    """
    device = settings.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = None if settings.dtype == "auto" else settings.dtype
    choice = ModelChoice(
        settings.model, device, dtype, settings.dummy_weights, settings.weights_seed, settings.attention
    )
    ranks = settings.tensor_parallel
    group: RankGroup | None = None
    try:
        if ranks == 1:
            yield _load(choice, device, Shard(), None), None
            return
        _check(settings, device)
        group = RankGroup.launch(ranks, choice, executor, on_lost, settings.engine_cpu)
        model = _load(choice, device_of(device, 0), Shard(0, ranks), all_reduce)
        group.wait_ready()
        yield model, group
    except (ModelLoadError, RankStartError) as error:
        raise SettingsError(str(error)) from error
    finally:
        if group is not None:
            group.close()


def _load(choice: ModelChoice, device: str, shard: Shard, summed: Callable[[torch.Tensor], None] | None) -> Decoder:
    return load_model(
        choice.name_or_folder, device, choice.dtype, choice.dummy, choice.seed, shard, summed, choice.attention
    )


def _check(settings: EngineSettings, device: str) -> None:
    """What can be refused before processes are started."""
    ranks = settings.tensor_parallel
    Shard(0, ranks).shape(load_shape(settings.model))
    if device == "cuda" and torch.cuda.device_count() < ranks:
        have = torch.cuda.device_count()
        raise SettingsError(f"--tensor-parallel {ranks} needs as many CUDA devices, this machine has {have}")
    if settings.hand_over_folder:
        raise SettingsError("--hand-over-folder conflicts with --tensor-parallel: KV is handed over by one rank only")
    if settings.engine_cpu is not None:
        for rank in range(1, ranks):
            require_cpu(settings.engine_cpu + rank, f"--engine-cpu {settings.engine_cpu}, rank {rank}")
