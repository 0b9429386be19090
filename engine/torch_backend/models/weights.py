"""Weights of a Llama-architecture decoder: their names and shapes, and where they come from."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from safetensors import SafetensorError, safe_open

from engine.model.shape import ModelLoadError, ModelShape

EMBEDDING = "model.embed_tokens.weight"
NORM = "model.norm.weight"
HEAD = "lm_head.weight"


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One layer. Matrices are [out, in]; qkv stacks q, k and v; gate_up stacks gate and up."""

    input_norm: torch.Tensor
    qkv: torch.Tensor
    o: torch.Tensor
    post_norm: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor


@dataclass(frozen=True, slots=True)
class LlamaWeights:
    """A whole decoder. With tied embeddings `head` is `embedding`."""

    embedding: torch.Tensor
    layers: tuple[LayerWeights, ...]
    norm: torch.Tensor
    head: torch.Tensor


class WeightSource(Protocol):
    """Gives tensors by their Hugging Face name, on the model's device and in its dtype."""

    def get(self, name: str, size: tuple[int, ...]) -> torch.Tensor:
        """The tensor; raises ModelLoadError when it is missing or of another shape."""
        ...


def tensor_sizes(shape: ModelShape) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and sizes of all tensors, in the order random weights are drawn in."""
    hidden, middle = shape.hidden_size, shape.intermediate_size
    q_size, kv_size = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    yield EMBEDDING, (shape.vocab_size, hidden)
    for layer in range(shape.layers):
        prefix = f"model.layers.{layer}."
        yield prefix + "input_layernorm.weight", (hidden,)
        yield prefix + "self_attn.q_proj.weight", (q_size, hidden)
        yield prefix + "self_attn.k_proj.weight", (kv_size, hidden)
        yield prefix + "self_attn.v_proj.weight", (kv_size, hidden)
        yield prefix + "self_attn.o_proj.weight", (hidden, q_size)
        yield prefix + "post_attention_layernorm.weight", (hidden,)
        yield prefix + "mlp.gate_proj.weight", (middle, hidden)
        yield prefix + "mlp.up_proj.weight", (middle, hidden)
        yield prefix + "mlp.down_proj.weight", (hidden, middle)
    yield NORM, (hidden,)
    if not shape.tied_embeddings:
        yield HEAD, (shape.vocab_size, hidden)


def fill(shape: ModelShape, source: WeightSource) -> LlamaWeights:
    """Take every tensor from the source, in the order of `tensor_sizes`, and fuse what is multiplied together."""
    taken: dict[str, torch.Tensor] = {}
    layers: list[LayerWeights] = []
    for name, size in tensor_sizes(shape):
        taken[name] = source.get(name, size)
        if name.endswith("mlp.down_proj.weight"):
            layers.append(_fused_layer(taken, f"model.layers.{len(layers)}."))
    embedding = taken[EMBEDDING]
    return LlamaWeights(embedding, tuple(layers), taken[NORM], taken.get(HEAD, embedding))


def _fused_layer(taken: dict[str, torch.Tensor], prefix: str) -> LayerWeights:
    def pop(name: str) -> torch.Tensor:
        return taken.pop(f"{prefix}{name}.weight")

    return LayerWeights(
        input_norm=pop("input_layernorm"),
        qkv=torch.cat([pop(f"self_attn.{part}_proj") for part in "qkv"]),
        o=pop("self_attn.o_proj"),
        post_norm=pop("post_attention_layernorm"),
        gate_up=torch.cat([pop("mlp.gate_proj"), pop("mlp.up_proj")]),
        down=pop("mlp.down_proj"),
    )


class RandomWeights:
    """Weights by seed. On a CPU they are the same bits on every machine: uniform draws, one exact shift, one product.

    Matrices have variance 1 / columns, so that activations keep their size; norms are 1.
    """

    def __init__(self, seed: int, device: torch.device, dtype: torch.dtype) -> None:
        self._generator = torch.Generator(device).manual_seed(seed)
        self._device, self._dtype = device, dtype

    def get(self, name: str, size: tuple[int, ...]) -> torch.Tensor:
        """The next tensor of the stream: ask in the order of `tensor_sizes`."""
        if name.endswith("norm.weight"):
            return torch.ones(size, device=self._device, dtype=self._dtype)
        draw = torch.rand(size, generator=self._generator, device=self._device)
        return draw.sub_(0.5).mul_((12 / size[-1]) ** 0.5).to(self._dtype)


class SafetensorsFolder:
    """Weights of a Hugging Face folder: `model.safetensors`, or shards named by `model.safetensors.index.json`."""

    def __init__(self, folder: Path, device: torch.device, dtype: torch.dtype) -> None:
        self._folder, self._device, self._dtype = folder, device, dtype
        self._files = _files_of_tensors(folder)

    def get(self, name: str, size: tuple[int, ...]) -> torch.Tensor:
        """Read one tensor; raises ModelLoadError when it is missing, damaged or of another shape."""
        file = self._files.get(name)
        if file is None:
            raise ModelLoadError(f"{self._folder}: tensor {name} is missing")
        try:
            with safe_open(file, framework="pt") as opened:
                tensor: torch.Tensor = opened.get_tensor(name)
        except (OSError, SafetensorError) as error:
            raise ModelLoadError(f"{file}: cannot read tensor {name} ({error})") from error
        if tuple(tensor.shape) != size:
            raise ModelLoadError(f"{file}: tensor {name} has shape {list(tensor.shape)}, expected {list(size)}")
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
