"""A model whose long prompts take long enough to be preempted, at little cost to build."""

import json
from pathlib import Path

import pytest

DEEP = {
    "architectures": ["LlamaForCausalLM"],
    "eos_token_id": 1,
    "head_dim": 16,
    "hidden_size": 64,
    "intermediate_size": 160,
    "max_position_embeddings": 8192,
    "num_attention_heads": 4,
    "num_hidden_layers": 16,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "torch_dtype": "float32",
    "vocab_size": 512,
}


@pytest.fixture(scope="session")
def deep_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a config only, and a profile beside it."""
    folder = tmp_path_factory.mktemp("deep")
    (folder / "config.json").write_text(json.dumps(DEEP))
    rows = [{"new_tokens": n, "context_tokens": 0, "seconds": n * 2e-4} for n in (16, 64, 256, 1024, 2048, 4096)]
    (folder / "profile.json").write_text(json.dumps({"prefill": rows}))
    return folder


@pytest.fixture(scope="session")
def deep_flags(deep_model: Path) -> list[str]:
    """Server flags for it."""
    return ["--model", str(deep_model), "--dummy-weights", "--profile", str(deep_model / "profile.json")]
