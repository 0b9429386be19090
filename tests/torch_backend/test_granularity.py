from engine.core.batch import Sequence
from engine.model.granularity import Granularity, TileSettings
from engine.torch_backend.models.llama import Llama
from tests.torch_backend.engine_run import new_cache, plan, prompt


def boundaries(model: Llama, granularity: Granularity) -> list[str]:
    cache = new_cache(model)
    cache.allocate("a", 20)
    program = plan(model, cache, [Sequence("a", 0, 20)], {"a": prompt(20)}, granularity, TileSettings(10, 105))
    return [operator.name for operator in program.operators if operator.boundary]


def test_boundaries_of_each_granularity(tiny: Llama) -> None:
    assert boundaries(tiny, Granularity.NONE) == []
    assert boundaries(tiny, Granularity.LAYER) == ["embedding", "L0.qkv_proj", "L1.qkv_proj", "head"]
    assert boundaries(tiny, Granularity.HALF_LAYER) == [
        "embedding", "L0.qkv_proj", "L0.gate_up_proj", "L1.qkv_proj", "L1.gate_up_proj", "head",
    ]  # fmt: skip
    per_layer = ["qkv_proj", "attention", "o_proj", "gate_up_proj", "down_proj"]
    assert boundaries(tiny, Granularity.OPERATOR) == [
        "embedding", *[f"L{layer}.{name}" for layer in (0, 1) for name in per_layer], "head",
    ]  # fmt: skip
    tiles = [f"L{layer}.{name}[{tile}/2]" for layer in (0, 1) for name in per_layer for tile in (0, 1)]
    assert boundaries(tiny, Granularity.TILE) == ["embedding", *tiles, "head"]


def test_short_operators_are_not_split(tiny: Llama) -> None:
    cache = new_cache(tiny)
    cache.allocate("a", 20)
    program = plan(
        tiny, cache, [Sequence("a", 0, 20)], {"a": prompt(20)}, Granularity.TILE, TileSettings(rows=20, pairs=210)
    )
    assert [operator.name for operator in program.operators][1:6] == [
        "L0.qkv_proj", "L0.attention", "L0.o_proj", "L0.gate_up_proj", "L0.down_proj",
    ]  # fmt: skip
