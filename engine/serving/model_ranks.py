"""The model an engine runs, from its settings: its ranks, their devices and CPUs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from engine.model.shape import ModelLoadError
from engine.serving.settings import EngineSettings, SettingsError
from engine.torch_backend.models.decoder import Decoder
from engine.torch_backend.rank_messages import ModelChoice
from engine.torch_backend.settings import ExecutorSettings
from engine.torch_backend.split_model import load_ranks
from engine.torch_backend.tensor_parallel import RankGroup


@contextmanager
def model_ranks(
    settings: EngineSettings, executor: ExecutorSettings, on_lost: Callable[[str], None]
) -> Iterator[tuple[Decoder, RankGroup | None]]:
    """The model and, with --tensor-parallel, the other ranks; they end with the context.

    on_lost: told once, from any thread, why the ranks cannot go on. Raises SettingsError.
    """
    device = settings.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = None if settings.dtype == "auto" else settings.dtype
    if settings.tensor_parallel > 1:
        _check(settings)
    elif device == "cuda" and (devices := torch.cuda.device_count()):
        device = f"cuda:{settings.cuda_device % devices}"
    choice = ModelChoice(
        settings.model, device, dtype, settings.dummy_weights, settings.weights_seed, settings.attention
    )
    try:
        with load_ranks(choice, settings.tensor_parallel, executor, on_lost, settings.engine_cpu) as loaded:
            yield loaded
    except ModelLoadError as error:
        raise SettingsError(str(error)) from error


def _check(settings: EngineSettings) -> None:
    if settings.cuda_device:
        raise SettingsError("--cuda-device conflicts with --tensor-parallel: ranks take the devices from the first on")
    if settings.hand_over_folder:
        raise SettingsError("--hand-over-folder conflicts with --tensor-parallel: KV is handed over by one rank only")
