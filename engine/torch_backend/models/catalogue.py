"""Models with their weights, by name or by folder."""

from collections.abc import Callable, Mapping
from typing import Final

import torch

from engine.model.catalogue import SHAPES, shape_folder
from engine.model.shape import LLAMA, QWEN2, QWEN3, QWEN3_MOE, ModelLoadError, read_shape
from engine.torch_backend.attention_choice import choose_attention
from engine.torch_backend.models.decoder import Decoder
from engine.torch_backend.models.llama import Llama
from engine.torch_backend.models.qwen2 import Qwen2
from engine.torch_backend.models.qwen3 import Qwen3
from engine.torch_backend.models.qwen3_moe import Qwen3Moe
from engine.torch_backend.models.shard import WHOLE, Shard
from engine.torch_backend.models.weight_sources import RandomWeights, SafetensorsFolder, WeightSource
from engine.torch_backend.models.weights import fill

DECODERS: Final[Mapping[str, type[Decoder]]] = {LLAMA: Llama, QWEN2: Qwen2, QWEN3: Qwen3, QWEN3_MOE: Qwen3Moe}
"""The operators of each architecture that `read_shape` knows."""


def load_model(
    name_or_folder: str,
    device: str = "cpu",
    dtype: str | None = None,
    dummy: bool = False,
    seed: int = 0,
    shard: Shard = WHOLE,
    all_reduce: Callable[[torch.Tensor], None] | None = None,
    attention: str = "auto",
) -> Decoder:
    """A model ready to run.

    name_or_folder: a name of `model_names()` (random weights by `seed`: names have no files), or a Hugging Face folder.
    dtype: "float32", "bfloat16" or "float16"; None = what the config names.
    dummy: random weights by `seed` for a folder too; only its config.json is read.
    shard: the part of the model this process computes; with more than one rank, all_reduce sums over them.
    attention: the kernel, one of `ATTENTIONS`.
    Raises ModelLoadError with one sentence for anything the user can mend.
    """
    folder = shape_folder(name_or_folder)
    shape = read_shape(folder)
    part = shard.shape(shape)
    place, number_type = _device(device), torch_dtype(dtype or shape.dtype)
    kernel = choose_attention(attention, part, place, number_type)
    source: WeightSource
    if dummy or folder.parent == SHAPES:
        source = RandomWeights(seed, place, number_type, shard)
    else:
        source = SafetensorsFolder(folder, place, number_type, shard)
    with torch.no_grad():
        return DECODERS[shape.architecture](part, fill(shape, source), all_reduce, kernel)


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


def torch_dtype(name: str) -> torch.dtype:
    """The number format of this name. Raises ModelLoadError for one the engine does not compute in."""
    known = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    if name not in known:
        raise ModelLoadError(f"dtype {name} is not supported, only {', '.join(known)} are")
    return known[name]
