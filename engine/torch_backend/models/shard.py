"""One rank's part of a model that several ranks compute together (tensor parallelism)."""

from dataclasses import dataclass, replace

from engine.model.shape import ModelLoadError, ModelShape
from engine.torch_backend.models.tensors import TensorSpec


@dataclass(frozen=True, slots=True)
class Shard:
    """Rank `rank` of `ranks`: it holds 1 / ranks of the heads, of the key heads, and of every MLP's inner rows."""

    rank: int = 0
    ranks: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.ranks:
            raise ValueError(f"rank must be from 0 to {self.ranks - 1}, got {self.rank}")

    def shape(self, whole: ModelShape) -> ModelShape:
        """The shape of this rank's part. Raises ModelLoadError where it cannot be split evenly."""
        for name in ("heads", "kv_heads", "moe_intermediate_size" if whole.experts else "intermediate_size"):
            if getattr(whole, name) % self.ranks:
                raise ModelLoadError(
                    f"model {whole.name}: {name} {getattr(whole, name)} cannot be split over {self.ranks} ranks"
                )
        return replace(
            whole,
            heads=whole.heads // self.ranks,
            kv_heads=whole.kv_heads // self.ranks,
            intermediate_size=whole.intermediate_size // self.ranks,
            moe_intermediate_size=whole.moe_intermediate_size // self.ranks,
        )

    def index(self, spec: TensorSpec) -> tuple[slice, ...]:
        """Which part of a tensor this rank holds, as an index of the whole tensor."""
        index = [slice(0, size) for size in spec.size]
        if spec.split is not None:
            part = spec.size[spec.split] // self.ranks
            index[spec.split] = slice(self.rank * part, (self.rank + 1) * part)
        return tuple(index)


WHOLE = Shard()
