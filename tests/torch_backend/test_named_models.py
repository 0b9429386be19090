"""Every named model can be built, with the number of weights it is known for; nothing is allocated."""

import math

import pytest
import torch

from engine.model.catalogue import load_shape, model_names
from engine.torch_backend.models.catalogue import DECODERS
from engine.torch_backend.models.shard import Shard
from engine.torch_backend.models.tensors import TensorSpec, list_tensors
from engine.torch_backend.models.weights import DecoderWeights, fill

PARAMETERS = {
    "llama3_8b": 8_030_261_248,
    "llama3_70b": 70_553_706_496,
    "qwen2_5_14b": 14_770_033_664,
    "qwen3_30b_a3b": 30_532_122_624,
}
"""As the model cards count them."""


class MetaWeights:
    """Tensors without memory."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard

    def get(self, spec: TensorSpec) -> torch.Tensor:
        return torch.empty(spec.size, device="meta", dtype=torch.bfloat16)[self._shard.index(spec)]


def numbers(weights: DecoderWeights) -> int:
    parts = [weights.embedding, weights.norm]
    if weights.head is not weights.embedding:
        parts.append(weights.head)
    for layer in weights.layers:
        parts += [layer.input_norm, layer.post_norm, layer.q_norm, layer.k_norm, layer.qkv.bias]
        parts += [layer.qkv, layer.o, layer.mlp.gate_up, layer.mlp.down, getattr(layer.mlp, "router", None)]
    return sum(math.prod(part.shape) for part in parts if part is not None)


@pytest.mark.parametrize("name", model_names())
def test_a_named_model_is_built_from_its_tensors(name: str) -> None:
    shape = load_shape(name)
    weights = fill(shape, MetaWeights(Shard()))
    assert numbers(weights) == sum(torch.Size(spec.size).numel() for spec in list_tensors(shape))
    assert numbers(weights) == PARAMETERS.get(name, numbers(weights))
    assert set(DECODERS[shape.architecture](shape, weights).row_kernels()) >= {"qkv_proj", "o_proj"}


@pytest.mark.parametrize("name", sorted(PARAMETERS))
def test_four_ranks_share_the_matrices_of_the_layers(name: str) -> None:
    whole = load_shape(name)
    shard = Shard(1, 4)
    part = fill(whole, MetaWeights(shard)).layers[0]
    shape = shard.shape(whole)
    assert part.qkv.shape == ((shape.heads + 2 * shape.kv_heads) * shape.head_dim, shape.hidden_size)
    assert part.o.shape == (shape.hidden_size, whole.heads * shape.head_dim // 4)
    inner = (whole.moe_intermediate_size or whole.intermediate_size) // 4
    assert tuple(part.mlp.gate_up.shape[-2:]) == (2 * inner, shape.hidden_size)
    assert tuple(part.mlp.down.shape[-2:]) == (shape.hidden_size, inner)
    assert part.input_norm.shape == (shape.hidden_size,)
    if whole.experts:
        assert part.mlp.router.shape == (whole.experts, shape.hidden_size)
