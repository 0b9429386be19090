"""Where weights come from: random numbers by seed, or the files of a Hugging Face folder."""

import json
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open

from engine.model.shape import ModelLoadError
from engine.torch_backend.models.shard import WHOLE, Shard
from engine.torch_backend.models.tensors import TensorSpec

_NUMBERS = ("F64", "F32", "F16", "BF16")
"""What safetensors calls the number formats of weights; others are quantized, and mean nothing without their scales."""


class WeightSource(Protocol):
    """Gives tensors by their Hugging Face name, on the model's device and in its dtype."""

    def get(self, spec: TensorSpec) -> torch.Tensor:
        """The tensor, or the part of it that this rank holds; raises ModelLoadError: missing, or of another shape."""
        ...


class RandomWeights:
    """Weights by seed. On a CPU they are the same bits on every machine: uniform draws, one exact shift, one product.

    Matrices have variance 1 / columns, so that activations keep their size; norms are 1. A rank draws whole tensors and
    keeps its part: the ranks' parts make up the model that one rank alone would have.
    """

    def __init__(self, seed: int, device: torch.device, dtype: torch.dtype, shard: Shard = WHOLE) -> None:
        self._generator = torch.Generator(device).manual_seed(seed)
        self._device, self._dtype, self._shard = device, dtype, shard

    def get(self, spec: TensorSpec) -> torch.Tensor:
        """The next tensor of the stream: ask in the order of `list_tensors`."""
        if spec.name.endswith("norm.weight"):
            return torch.ones(spec.size, device=self._device, dtype=self._dtype)
        draw = torch.rand(spec.size, generator=self._generator, device=self._device)
        draw = draw.sub_(0.5).mul_((12 / spec.size[-1]) ** 0.5).to(self._dtype)
        return draw if self._shard.ranks == 1 else draw[self._shard.index(spec)].clone()


class SafetensorsFolder:
    """Weights of a Hugging Face folder: `model.safetensors`, or shards named by `model.safetensors.index.json`."""

    def __init__(self, folder: Path, device: torch.device, dtype: torch.dtype, shard: Shard = WHOLE) -> None:
        self._folder, self._device, self._dtype, self._shard = folder, device, dtype, shard
        self._files = _files_of_tensors(folder)
        self._opened: dict[Path, Any] = {}  # a file of many tensors has a long header: it is read once

    def get(self, spec: TensorSpec) -> torch.Tensor:
        """Read one tensor; raises ModelLoadError when it is missing, damaged or of another shape."""
        file = self._files.get(spec.name)
        if file is None:
            raise ModelLoadError(f"{self._folder}: tensor {spec.name} is missing")
        try:
            if file not in self._opened:
                self._opened[file] = safe_open(file, framework="pt")
            stored = self._opened[file].get_slice(spec.name)
            if stored.get_dtype() not in _NUMBERS:
                raise ModelLoadError(f"{file}: tensor {spec.name} holds {stored.get_dtype()}, which is not supported")
            size = tuple(stored.get_shape())
            if size != spec.size:
                raise ModelLoadError(f"{file}: tensor {spec.name} has shape {list(size)}, expected {list(spec.size)}")
            tensor: torch.Tensor = stored[self._shard.index(spec)]
        except (OSError, SafetensorError) as error:
            raise ModelLoadError(f"{file}: cannot read tensor {spec.name} ({error})") from error
        # A copy: the file's own memory is not aligned, which slows matrix products and changes their last bits.
        return tensor.to(self._device, self._dtype, copy=True)


def _files_of_tensors(folder: Path) -> dict[str, Path]:
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if index.is_file():
        try:
            names = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
            return {name: folder / file for name, file in names.items()}
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise ModelLoadError(f"{index}: not a safetensors index ({error!r})") from error
    if not single.is_file():
        raise ModelLoadError(f"{folder}: neither {single.name} nor {index.name} is there")
    try:
        with safe_open(single, framework="pt") as opened:
            return dict.fromkeys(opened.keys(), single)
    except (OSError, SafetensorError) as error:
        raise ModelLoadError(f"{single}: not a readable safetensors file ({error})") from error
