"""How many tokens of KV fit beside a model's weights."""

from engine.model.shape import ModelShape
from engine.simulation.accelerators import Accelerator
from engine.simulation.devices.rank_sizes import RankSizes


def kv_pool_tokens(
    shape: ModelShape, accelerator: Accelerator, tensor_parallel: int, element_bytes: int, block_tokens: int
) -> int:
    """Tokens, in whole blocks, of the memory left on each rank after weights and what serving needs besides.

    Raises ValueError where not one block is left, or the model does not divide into the ranks.
    """
    usable = accelerator.memory_share * accelerator.memory_bytes - accelerator.reserved_bytes
    weights = rank_weights(shape, tensor_parallel) * element_bytes
    left = usable - weights
    sizes = RankSizes.of(shape, tensor_parallel)
    token_bytes = 2 * sizes.key_value * shape.layers * element_bytes
    blocks = int(left // (token_bytes * block_tokens))
    if blocks < 1:
        raise ValueError(
            f"model {shape.name} leaves no memory for KV on {tensor_parallel} accelerator(s): its weights take"
            f" {weights / 1e9:.4g} GB of each, and {usable / 1e9:.4g} GB are left for weights and KV"
        )
    return blocks * block_tokens


def rank_weights(shape: ModelShape, tensor_parallel: int) -> int:
    """Weights of one rank: norms and router are repeated on each, the rest is split."""
    sizes = RankSizes.of(shape, tensor_parallel)
    projected = sizes.query + 2 * sizes.key_value
    attention = sizes.hidden * projected + sizes.query * sizes.hidden + (projected if shape.qkv_bias else 0)
    if shape.experts:
        mlp = shape.experts * 3 * sizes.hidden * sizes.expert_middle + sizes.hidden * shape.experts
    else:
        mlp = 3 * sizes.hidden * sizes.middle
    layer = attention + mlp + 2 * sizes.hidden
    ends = (1 if shape.tied_embeddings else 2) * sizes.vocabulary * sizes.hidden + sizes.hidden
    return shape.layers * layer + ends
