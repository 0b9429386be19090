"""Names and sizes of a decoder's tensors in a Hugging Face checkpoint, and along which dimension ranks split them."""

from collections.abc import Iterator
from dataclasses import dataclass

from engine.model.shape import ModelShape

EMBEDDING = "model.embed_tokens.weight"
NORM = "model.norm.weight"
HEAD = "lm_head.weight"


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor. split: the dimension that the ranks of a tensor-parallel group share out; None = each has all of it."""

    name: str
    size: tuple[int, ...]
    split: int | None = None


def list_tensors(shape: ModelShape) -> Iterator[TensorSpec]:
    """All tensors of the whole model, in the order random weights are drawn in."""
    yield TensorSpec(EMBEDDING, (shape.vocab_size, shape.hidden_size))
    for layer in range(shape.layers):
        for part in list_layer(shape):
            yield TensorSpec(f"model.layers.{layer}.{part.name}", part.size, part.split)
    yield TensorSpec(NORM, (shape.hidden_size,))
    if not shape.tied_embeddings:
        yield TensorSpec(HEAD, (shape.vocab_size, shape.hidden_size))


def list_layer(shape: ModelShape) -> Iterator[TensorSpec]:
    """Tensors of one layer, named within it."""
    hidden = shape.hidden_size
    query, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    yield TensorSpec("input_layernorm.weight", (hidden,))
    for part, rows in (("q", query), ("k", kv), ("v", kv)):
        yield TensorSpec(f"self_attn.{part}_proj.weight", (rows, hidden), split=0)
    if shape.qkv_bias:
        for part, rows in (("q", query), ("k", kv), ("v", kv)):
            yield TensorSpec(f"self_attn.{part}_proj.bias", (rows,), split=0)
    if shape.qk_norm:
        for part in "qk":
            yield TensorSpec(f"self_attn.{part}_norm.weight", (shape.head_dim,))
    yield TensorSpec("self_attn.o_proj.weight", (hidden, query), split=1)
    yield TensorSpec("post_attention_layernorm.weight", (hidden,))
    if not shape.experts:
        yield from _gated_mlp("mlp.", hidden, shape.intermediate_size)
        return
    yield TensorSpec("mlp.gate.weight", (shape.experts, hidden))
    for expert in range(shape.experts):
        yield from _gated_mlp(f"mlp.experts.{expert}.", hidden, shape.moe_intermediate_size)


def _gated_mlp(prefix: str, hidden: int, middle: int) -> Iterator[TensorSpec]:
    yield TensorSpec(prefix + "gate_proj.weight", (middle, hidden), split=0)
    yield TensorSpec(prefix + "up_proj.weight", (middle, hidden), split=0)
    yield TensorSpec(prefix + "down_proj.weight", (hidden, middle), split=1)
