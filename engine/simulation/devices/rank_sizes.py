"""How much of a layer one rank of a tensor-parallel group computes."""

from dataclasses import dataclass

from engine.model.shape import ModelShape


@dataclass(frozen=True, slots=True)
class RankSizes:
    """Sizes of one rank's share; all in elements.

    query: its query heads together; key_value: its key heads together (its value heads as many). middle: inner size of
    its share of the MLP; expert_middle: of its share of each expert. vocabulary: rows of the head.
    """

    hidden: int
    query: int
    key_value: int
    middle: int
    expert_middle: int
    vocabulary: int

    @staticmethod
    def of(shape: ModelShape, tensor_parallel: int) -> "RankSizes":
        """The largest share. Key heads are repeated where there are fewer than ranks. Raises ValueError where heads or
        the MLP do not divide."""
        if tensor_parallel < 1:
            raise ValueError(f"tensor_parallel must be at least 1, got {tensor_parallel}")
        inner = shape.moe_intermediate_size if shape.experts else shape.intermediate_size
        for what, size in (("query heads", shape.heads), ("inner MLP columns", inner)):
            if size % tensor_parallel:
                raise ValueError(f"model {shape.name}: {size} {what} do not divide into {tensor_parallel} ranks")
        if shape.kv_heads % tensor_parallel and tensor_parallel % shape.kv_heads:
            raise ValueError(
                f"model {shape.name}: {shape.kv_heads} key heads do not divide into {tensor_parallel} ranks"
            )
        return RankSizes(
            hidden=shape.hidden_size,
            query=shape.heads // tensor_parallel * shape.head_dim,
            key_value=max(1, shape.kv_heads // tensor_parallel) * shape.head_dim,
            middle=0 if shape.experts else shape.intermediate_size // tensor_parallel,
            expert_middle=shape.moe_intermediate_size // tensor_parallel if shape.experts else 0,
            vocabulary=-(-shape.vocab_size // tensor_parallel),
        )
