"""Settings, refusals and boundaries of the vLLM plugin: nothing here needs vLLM."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from vllm_flowprefill.boundaries import OPERATORS, Hooks, boundaries
from vllm_flowprefill.private_names import missing
from vllm_flowprefill.settings import SettingError, Settings, read_settings
from vllm_flowprefill.unsupported import refuse_unsupported


def test_settings_are_the_object_flowprefill_of_the_additional_config() -> None:
    given = {"flowprefill": {"granularity": "layer", "predictor_s": [0, 1, 2, 3], "default_ttft_slo_s": 2}, "other": 1}
    assert read_settings(given) == Settings(granularity="layer", predictor_s=(0, 1, 2, 3), default_ttft_slo_s=2)
    assert read_settings({}) == read_settings(None) == Settings()


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"granularity": "tile"}, "flowprefill.granularity must be one of none, chunk, layer, half_layer, operator"),
        ({"order": "fcfs"}, "flowprefill.order must be one of s_edf, edf, got 'fcfs'"),
        ({"depth": 3}, "flowprefill.depth is no setting"),
        ({"max_depth": 0}, "flowprefill.max_depth must be between 1 and 64, got 0"),
        ({"default_ttft_slo_s": 0}, "flowprefill.default_ttft_slo_s must be above 0"),
        ({"predictor_s": [1, 2]}, "flowprefill.predictor_s must be four numbers"),
        ("operator", "flowprefill in --additional-config must be an object"),
    ],
)
def test_a_wrong_setting_is_named(given: Any, sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        read_settings({"flowprefill": given})


def config(**changed: Any) -> SimpleNamespace:
    """What is read of a VllmConfig; `part__name` changes an attribute of a part."""
    parts: dict[str, dict[str, Any]] = {
        "scheduler_config": {"async_scheduling": False, "policy": "fcfs", "enable_chunked_prefill": True},
        "parallel_config": {
            f"{name}_parallel_size": 1 for name in ("tensor", "pipeline", "data", "decode_context", "prefill_context")
        },
        "model_config": {
            "runner_type": "generate", "is_encoder_decoder": False, "is_multimodal_model": False, "is_moe": False,
            "enforce_eager": True,
        },
    }  # fmt: skip
    plain: dict[str, Any] = dict.fromkeys(
        ("speculative_config", "kv_transfer_config", "ec_transfer_config", "lora_config")
    )
    plain["use_v2_model_runner"] = False
    for name, value in changed.items():
        part, _, attribute = name.partition("__")
        if attribute:
            parts[part][attribute] = value
        else:
            plain[part] = value
    return SimpleNamespace(**plain, **{name: SimpleNamespace(**values) for name, values in parts.items()})


OPERATOR = Settings(granularity="operator")


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"scheduler_config__async_scheduling": True}, "--async-scheduling"),
        ({"scheduler_config__policy": "priority"}, "--scheduling-policy"),
        ({"parallel_config__tensor_parallel_size": 2}, "--tensor-parallel-size 2"),
        ({"speculative_config": object()}, "--speculative-config"),
        ({"kv_transfer_config": object()}, "--kv-transfer-config"),
        ({"use_v2_model_runner": True}, "VLLM_USE_V2_MODEL_RUNNER=0"),
        ({"model_config__is_moe": True}, "mixture of experts"),
        ({"model_config__enforce_eager": False}, "--enforce-eager"),
    ],
)
def test_what_is_not_supported_is_refused_by_its_name(changed: dict[str, Any], word: str) -> None:
    refuse_unsupported(config(), OPERATOR, "0.32.0")
    with pytest.raises(SettingError, match=word):
        refuse_unsupported(config(**changed), OPERATOR, "0.32.0")


def test_chunks_need_no_eager_mode_and_another_vllm_is_refused() -> None:
    compiled = config(model_config__enforce_eager=False)
    refuse_unsupported(compiled, Settings(granularity="chunk"), "0.32.1")
    with pytest.raises(SettingError, match=r"vLLM 0\.32\.x is needed, this is 0\.33\.0"):
        refuse_unsupported(compiled, Settings(granularity="chunk"), "0.33.0")


def decoder(layers: int) -> list[str]:
    inside = ("self_attn", "self_attn.qkv_proj", "self_attn.rotary_emb", "self_attn.attn", "self_attn.o_proj", "mlp")
    names = (*inside, "mlp.gate_up_proj", "mlp.act_fn", "mlp.down_proj", "input_layernorm")
    return ["", "model", *(f"model.layers.{number}.{name}" for number in range(layers) for name in names), "lm_head"]


def test_boundaries_of_two_layers() -> None:
    labels = {
        granularity: [label for _, label in boundaries(iter(decoder(2)), granularity)]
        for granularity in ("layer", "half_layer", "operator")
    }
    assert labels["layer"] == ["L0.down_proj", "L1.down_proj"]
    assert labels["half_layer"] == ["L0.o_proj", "L0.down_proj", "L1.o_proj", "L1.down_proj"]
    assert labels["operator"][:5] == ["L0.qkv_proj", "L0.attn", "L0.o_proj", "L0.gate_up_proj", "L0.down_proj"]
    assert len(labels["operator"]) == 10


def test_a_model_of_other_layers_is_refused() -> None:
    experts = [name.replace("mlp.gate_up_proj", "mlp.experts") for name in decoder(1)]
    with pytest.raises(SettingError, match=r"layer 0 has no mlp\.gate_up_proj"):
        boundaries(iter(experts), "operator")
    with pytest.raises(SettingError, match="no layers"):
        boundaries(iter(["encoder"]), "layer")


def test_a_missing_private_attribute_is_told_by_its_name() -> None:
    core = SimpleNamespace(scheduler=SimpleNamespace(), model_executor=SimpleNamespace())
    names = set(missing(core))
    assert {"EngineCoreProc.step_fn", "Scheduler.prev_step_scheduled_req_ids"} <= names
    assert "UniProcExecutor.driver_worker.worker.model_runner" in names
    assert "EngineCoreProc.scheduler" not in names


class Module:
    """As torch's, as far as hooks go."""

    def __init__(self) -> None:
        self.hooks: list[Callable[..., None]] = []

    def register_forward_hook(self, call: Callable[..., None]) -> "Handle":
        self.hooks.append(call)
        return Handle(self, call)


class Handle:
    def __init__(self, module: Module, call: Callable[..., None]) -> None:
        self.remove = lambda: module.hooks.remove(call)


class Model(Module):
    def __init__(self) -> None:
        self.parts = {f"layers.{n}.{operator}": Module() for n in range(2) for operator in OPERATORS}

    def named_modules(self) -> Iterator[tuple[str, Module]]:
        yield from self.parts.items()


def test_hooks_are_there_only_while_armed() -> None:
    model, called = Model(), list[str]()
    hooks = Hooks(model, "half_layer", called.append)

    def run() -> list[str]:
        called.clear()
        for module in model.parts.values():
            for call in module.hooks:
                call(module, (), None)
        return called.copy()

    assert (len(hooks), run()) == (4, [])
    hooks.arm(True)
    hooks.arm(True)
    assert run() == ["L0.o_proj", "L0.down_proj", "L1.o_proj", "L1.down_proj"]
    hooks.arm(False)
    assert run() == []
