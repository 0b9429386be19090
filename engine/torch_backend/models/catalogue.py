"""Models with their weights, by name or by folder."""

from pathlib import Path

import torch

from engine.model.catalogue import SHAPES, shape_folder
from engine.model.shape import LLAMA, ModelLoadError, ModelShape, read_shape
from engine.torch_backend.models.llama import Llama
from engine.torch_backend.models.weights import RandomWeights, SafetensorsFolder, WeightSource, fill


def load_model(
    name_or_folder: str,
    device: str = "cpu",
    dtype: str | None = None,
    dummy: bool = False,
    seed: int = 0,
) -> Llama:
    """A model ready to run.

    name_or_folder: a name of `model_names()` (random weights by `seed`: names have no files), or a Hugging Face folder.
    dtype: "float32", "bfloat16" or "float16"; None = what the config names.
    dummy: random weights by `seed` for a folder too; only its config.json is read.
    Raises ModelLoadError with one sentence for anything the user can mend.
    """
    folder = shape_folder(name_or_folder)
    shape = runnable_shape(folder)
    place, number_type = _device(device), _dtype(dtype or shape.dtype)
    source: WeightSource
    if dummy or folder.parent == SHAPES:
        source = RandomWeights(seed, place, number_type)
    else:
        source = SafetensorsFolder(folder, place, number_type)
    with torch.no_grad():
        return Llama(shape, fill(shape, source))


def runnable_shape(folder: Path, name: str | None = None) -> ModelShape:
    """The shape in `folder/config.json`. Raises ModelLoadError when this engine has no kernels for it."""
    shape = read_shape(folder, name)
    if shape.architecture != LLAMA:
        named = f"{folder / 'config.json'}: architecture {shape.architecture}"
        raise ModelLoadError(f"{named} is not supported, the torch engine runs {LLAMA} only")
    return shape


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ModelLoadError(f"device {name} is not one torch knows") from error
    if device.type not in ("cpu", "cuda"):
        raise ModelLoadError(f"device {name} is not supported, only cpu and cuda are")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ModelLoadError(f"device {name} is asked for, but torch finds no CUDA device here")
    return device


def _dtype(name: str) -> torch.dtype:
    known = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    if name not in known:
        raise ModelLoadError(f"dtype {name} is not supported, only {', '.join(known)} are")
    return known[name]
