"""A decoder's weights as its operators use them: what is multiplied together lies together."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from engine.model.shape import ModelShape
from engine.torch_backend.models.matrix import Matrix, matrix
from engine.torch_backend.models.tensors import HEAD, NORM, TensorSpec, list_layer, list_tensors
from engine.torch_backend.models.weight_sources import WeightSource


@dataclass(frozen=True, slots=True)
class Mlp:
    """The dense half of a layer; gate_up stacks gate and up: [2 x inner, hidden] and [hidden, inner]."""

    gate_up: Matrix
    down: Matrix


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts. router: [experts, hidden]; gate_up, down: as of `Mlp`, [experts, out, in]."""

    router: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One layer. qkv stacks q, k and v, with their bias where the architecture has one.

    q_norm, k_norm: None where the architecture has none.
    """

    input_norm: torch.Tensor
    qkv: Matrix
    o: Matrix
    post_norm: torch.Tensor
    mlp: Mlp | Experts
    q_norm: torch.Tensor | None = None
    k_norm: torch.Tensor | None = None


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """A whole decoder. With tied embeddings `head` is `embedding`."""

    embedding: torch.Tensor
    layers: tuple[LayerWeights, ...]
    norm: torch.Tensor
    head: torch.Tensor


def fill(shape: ModelShape, source: WeightSource) -> DecoderWeights:
    """Take every tensor from the source, in the order of `list_tensors`, and fuse what is multiplied together.

    shape: of the whole model, also where the source gives one rank's part.
    """
    specs = list_tensors(shape)
    embedding = source.get(next(specs))
    layers = tuple(_layer(shape, source, specs) for _ in range(shape.layers))
    rest = {spec.name: source.get(spec) for spec in specs}
    return DecoderWeights(embedding, layers, rest[NORM], rest.get(HEAD, embedding))


def _layer(shape: ModelShape, source: WeightSource, specs: Iterator[TensorSpec]) -> LayerWeights:
    taken = {part.name: source.get(next(specs)) for part in list_layer(shape)}

    def fused(*names: str) -> torch.Tensor:
        return torch.cat([taken.pop(name) for name in names])

    def optional(name: str) -> torch.Tensor | None:
        return taken.pop(name, None)

    def mlp() -> Mlp | Experts:
        if shape.experts:
            return Experts(taken.pop("mlp.gate.weight"), *_experts(shape.experts, taken))
        return Mlp(
            matrix(fused("mlp.gate_proj.weight", "mlp.up_proj.weight")), matrix(taken.pop("mlp.down_proj.weight"))
        )

    bias = fused(*(f"self_attn.{part}_proj.bias" for part in "qkv")) if shape.qkv_bias else None
    return LayerWeights(
        input_norm=taken["input_layernorm.weight"],
        qkv=matrix(fused(*(f"self_attn.{part}_proj.weight" for part in "qkv")), bias),
        o=matrix(taken.pop("self_attn.o_proj.weight")),
        post_norm=taken["post_attention_layernorm.weight"],
        mlp=mlp(),
        q_norm=optional("self_attn.q_norm.weight"),
        k_norm=optional("self_attn.k_norm.weight"),
    )


def _experts(experts: int, taken: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """gate_up [experts, 2 x inner, hidden] and down [experts, hidden, inner]; frees each expert's parts as it goes."""
    sample = taken["mlp.experts.0.down_proj.weight"]
    hidden, inner = sample.shape
    gate_up, down = sample.new_empty(experts, 2 * inner, hidden), sample.new_empty(experts, hidden, inner)
    for expert in range(experts):
        prefix = f"mlp.experts.{expert}."
        gate_up[expert, :inner] = taken.pop(prefix + "gate_proj.weight")
        gate_up[expert, inner:] = taken.pop(prefix + "up_proj.weight")
        down[expert] = taken.pop(prefix + "down_proj.weight")
    return gate_up, down
