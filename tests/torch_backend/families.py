"""Tiny models of every architecture with random weights, and the same ones in transformers."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import load_file, save_file

from engine.model.catalogue import shape_folder
from engine.torch_backend.checkpoint_folder import write_checkpoint
from engine.torch_backend.models.catalogue import load_model
from engine.torch_backend.models.decoder import Decoder

_EXPERTS = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 40,
}
FAMILIES: Final[dict[str, dict[str, Any]]] = {
    "llama": {
        "tie_word_embeddings": False,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    },
    "qwen2": {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "head_dim": "absent"},
    "qwen3": {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "head_dim": 32,
        "num_key_value_heads": 1,
        "tie_word_embeddings": False,
    },
    "qwen3_moe": {**_EXPERTS, "norm_topk_prob": True},
    "qwen3_moe_wide": {**_EXPERTS, "norm_topk_prob": False, "head_dim": 64, "tie_word_embeddings": False},
}
"""What differs from the config of `cpu_tiny`. The last one's queries are larger than what its MLP half keeps."""


@dataclass(frozen=True)
class Family:
    """A checkpoint, the engine's model of it and transformers' model of it."""

    name: str
    folder: Path
    model: Decoder
    reference: Any


def make_family(name: str, scratch: Path) -> Family:
    from transformers import AutoModelForCausalLM

    folder = write_family(name, scratch)
    reference, loading = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    assert not any(loading.values()), loading
    return Family(name, folder, load_model(str(folder)), reference.eval())


def write_family(name: str, scratch: Path) -> Path:
    """A folder with config, weights and tokenizer. Norms are no ones: a norm left out, or taken twice, shows."""
    (scratch / "shape").mkdir()
    config = {**json.loads((shape_folder("cpu_tiny") / "config.json").read_text()), **FAMILIES[name]}
    config = {key: value for key, value in config.items() if value != "absent"}
    (scratch / "shape" / "config.json").write_text(json.dumps(config))
    folder = scratch / name
    write_checkpoint(str(scratch / "shape"), folder)
    weights = load_file(folder / "model.safetensors")
    generator = torch.Generator().manual_seed(1)
    for tensor, values in weights.items():
        if tensor.endswith("norm.weight"):
            values += 0.5 * torch.rand(values.shape, generator=generator) - 0.25
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
