import json
from pathlib import Path
from typing import Any

import pytest

from engine.model.shape import ModelLoadError, ModelShape, RopeScaling, read_shape

ROPE = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
SIZES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "vocab_size": 300,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "torch_dtype": "bfloat16",
    "eos_token_id": 7,
}
LLAMA = {"architectures": ["LlamaForCausalLM"], **SIZES}
QWEN2 = {"architectures": ["Qwen2ForCausalLM"], "use_sliding_window": False, "sliding_window": 131072, **SIZES}
QWEN3 = {"architectures": ["Qwen3ForCausalLM"], "attention_bias": False, "head_dim": 16, **SIZES}
QWEN3_MOE = {
    **QWEN3,
    "architectures": ["Qwen3MoeForCausalLM"],
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "num_experts": 16,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 24,
}


def shape_of(folder: Path, config: dict[str, Any], **changes: Any) -> ModelShape:
    merged = {key: value for key, value in {**config, **changes}.items() if value != "absent"}
    (folder / "config.json").write_text(json.dumps(merged), encoding="utf-8")
    return read_shape(folder, "small")


def test_llama(tmp_path: Path) -> None:
    assert shape_of(tmp_path, LLAMA) == ModelShape(
        name="small",
        vocab_size=300,
        hidden_size=64,
        intermediate_size=96,
        layers=3,
        heads=8,
        kv_heads=2,
        head_dim=8,
        norm_eps=1e-6,
        rope_theta=1000000.0,
        rope_scaling=None,
        max_positions=4096,
        tied_embeddings=False,
        eos_token_ids=(7,),
        dtype="bfloat16",
        qkv_bias=False,
        experts=0,
        experts_per_token=0,
        moe_intermediate_size=0,
        architecture="LlamaForCausalLM",
    )


def test_llama_fills_what_is_left_out(tmp_path: Path) -> None:
    shape = shape_of(tmp_path, LLAMA, num_key_value_heads="absent", max_position_embeddings="absent")
    assert (shape.kv_heads, shape.max_positions) == (8, 2048)


def test_qwen2_has_a_bias_in_q_k_and_v_whatever_it_says(tmp_path: Path) -> None:
    shape = shape_of(tmp_path, QWEN2)
    assert (shape.architecture, shape.qkv_bias, shape.head_dim, shape.experts) == ("Qwen2ForCausalLM", True, 8, 0)
    assert shape_of(tmp_path, QWEN2, attention_bias=True).qkv_bias
    assert shape_of(tmp_path, QWEN2, attention_bias=False).qkv_bias


def test_qwen3_names_its_head_size_and_has_no_bias(tmp_path: Path) -> None:
    shape = shape_of(tmp_path, QWEN3)
    assert (shape.architecture, shape.qkv_bias, shape.head_dim, shape.heads) == ("Qwen3ForCausalLM", False, 16, 8)


@pytest.mark.parametrize("changes", [{}, {"num_experts": "absent", "num_local_experts": 16}, {"mlp_only_layers": None}])
def test_qwen3_moe_has_experts_in_every_layer(tmp_path: Path, changes: dict[str, Any]) -> None:
    shape = shape_of(tmp_path, QWEN3_MOE, **changes)
    assert (shape.experts, shape.experts_per_token, shape.moe_intermediate_size) == (16, 4, 24)
    assert not shape.normalized_experts
    assert shape_of(tmp_path, QWEN3_MOE, norm_topk_prob=True, **changes).normalized_experts
    assert (shape.architecture, shape.intermediate_size) == ("Qwen3MoeForCausalLM", 96)


@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
def test_scaled_positions_are_read_under_both_names(tmp_path: Path, key: str) -> None:
    shape = shape_of(tmp_path, LLAMA, **{key: {"rope_type": "llama3", "rope_theta": 5e5, **ROPE}})
    assert shape.rope_scaling == RopeScaling(8.0, 1.0, 4.0, 64)
    assert shape.rope_theta == (1e6 if key == "rope_scaling" else 5e5)


ODD: tuple[Any, ...] = (None, "x", -1, 0, 1.5, True, [], {}, [1], {"a": 1}, 10**12, float("nan"), [None], ["</s>"])


@pytest.mark.parametrize("config", [LLAMA, QWEN2, QWEN3, QWEN3_MOE], ids=lambda config: config["architectures"][0])
def test_whatever_a_config_says_it_is_a_shape_or_a_sentence(tmp_path: Path, config: dict[str, Any]) -> None:
    told = []
    for key in {*QWEN3_MOE, *QWEN2, "rope_scaling", "rope_parameters", "layer_types", "dtype", "num_local_experts"}:
        for value in ODD:
            try:
                shape_of(tmp_path, config, **{key: value})
            except ModelLoadError as error:
                told.append(str(error))
    assert len(told) > 100
    assert all(each.startswith(f"{tmp_path / 'config.json'}: ") and "\n" not in each for each in told)


def test_the_end_of_text_ids_of_the_generation_config_win(tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [3, 4]}', encoding="utf-8")
    assert shape_of(tmp_path, LLAMA).eos_token_ids == (3, 4)


@pytest.mark.parametrize(
    ("config", "changes", "sentence"),
    [
        (LLAMA, {"architectures": ["MixtralForCausalLM"]}, "architecture MixtralForCausalLM is not known, only Llam"),
        (LLAMA, {"architectures": "absent"}, "architecture none named is not known"),
        (LLAMA, {"attention_bias": True}, "attention_bias is set"),
        (LLAMA, {"mlp_bias": True}, "mlp_bias is set"),
        (LLAMA, {"hidden_act": "gelu"}, "hidden_act gelu is not supported"),
        (LLAMA, {"quantization_config": {"bits": 4}}, "quantized weights"),
        (LLAMA, {"num_key_value_heads": 3}, "num_attention_heads 8 is no multiple of num_key_value_heads 3"),
        (LLAMA, {"hidden_size": "absent"}, "hidden_size is missing"),
        (LLAMA, {"head_dim": 15}, "head_dim 15 is odd"),
        (LLAMA, {"rope_scaling": {"rope_type": "yarn"}}, "rope scaling of type yarn is not supported"),
        (LLAMA, {"rope_scaling": {"rope_type": "llama3", "factor": 8}}, "lacks low_freq_factor"),
        (LLAMA, {"rope_scaling": {"rope_type": "llama3", **ROPE, "factor": "8x"}}, "factor must be a number above 0"),
        (LLAMA, {"rope_scaling": {"rope_type": "llama3", **ROPE, "low_freq_factor": 4}}, "must be below high_freq_fac"),
        (LLAMA, {"rope_scaling": "linear"}, "rope_scaling must be an object, got 'linear'"),
        (LLAMA, {"rope_parameters": [8]}, r"rope_parameters must be an object, got \[8\]"),
        (LLAMA, {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4}}, "rope scaling of type dynamic is"),
        (LLAMA, {"rope_theta": "big"}, "rope_theta must be a number above 0, got 'big'"),
        (LLAMA, {"rms_norm_eps": 0}, "rms_norm_eps must be a number above 0, got 0"),
        (LLAMA, {"architectures": 3}, "architectures must be a list, got 3"),
        (LLAMA, {"layer_types": 3}, "layer_types must be a list, got 3"),
        (LLAMA, {"eos_token_id": "</s>"}, "eos_token_id must be whole numbers, got '</s>'"),
        (LLAMA, {"vocab_size": "many"}, "vocab_size must be a whole number above 0, got 'many'"),
        (LLAMA, {"vocab_size": True}, "vocab_size must be a whole number above 0, got True"),
        (QWEN2, {"use_sliding_window": True}, "attention over a sliding window is not supported"),
        (QWEN2, {"layer_types": ["full_attention", "sliding_attention"]}, "attention over a sliding window"),
        (QWEN2, {"num_key_value_heads": "absent"}, "num_key_value_heads is missing"),
        (QWEN2, {"max_position_embeddings": "absent"}, "max_position_embeddings is missing"),
        (QWEN2, {"rope_scaling": {"type": "yarn", "factor": 4}}, "rope scaling of type yarn is not supported"),
        (QWEN3, {"attention_bias": True}, "attention_bias is set"),
        (QWEN3, {"head_dim": "absent"}, "head_dim is missing"),
        (QWEN3_MOE, {"mlp_only_layers": [0, 5]}, r"mlp_only_layers \[0, 5\] mixes dense and expert layers"),
        (QWEN3_MOE, {"decoder_sparse_step": 2}, "decoder_sparse_step 2 mixes dense and expert layers"),
        (QWEN3_MOE, {"num_experts": "absent"}, "num_experts is missing"),
        (QWEN3_MOE, {"num_experts": 0}, "num_experts must be a whole number above 0, got 0"),
        (QWEN3_MOE, {"num_experts_per_tok": 17}, "num_experts_per_tok 17 is more than the 16 experts of a layer"),
        (QWEN3_MOE, {"num_experts_per_tok": "absent"}, "num_experts_per_tok is missing"),
        (QWEN3_MOE, {"moe_intermediate_size": "absent"}, "moe_intermediate_size is missing"),
    ],
)
def test_what_is_not_known_is_refused_in_one_sentence(
    tmp_path: Path, config: dict[str, Any], changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ModelLoadError, match=sentence) as caught:
        shape_of(tmp_path, config, **changes)
    assert str(caught.value).startswith(f"{tmp_path / 'config.json'}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "cannot read the model's configuration"),
        ("{", "not valid JSON"),
        ("[]", "a JSON object is expected"),
    ],
)
def test_an_unreadable_config_is_named(tmp_path: Path, content: str | None, sentence: str) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content, encoding="utf-8")
    with pytest.raises(ModelLoadError, match=rf"config\.json: {sentence}"):
        read_shape(tmp_path)
