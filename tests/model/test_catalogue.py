from pathlib import Path

import pytest

from engine.model.catalogue import load_shape, model_names, shape_folder
from engine.model.shape import ModelLoadError


def test_every_shape_in_the_catalogue_is_readable() -> None:
    assert {"cpu_demo", "cpu_tiny", "llama3_8b"} <= set(model_names())
    assert all(load_shape(name).name == name for name in model_names())


def test_llama3_8b_is_the_published_model() -> None:
    llama = load_shape("llama3_8b")
    assert (llama.layers, llama.hidden_size, llama.intermediate_size, llama.vocab_size) == (32, 4096, 14336, 128256)
    assert (llama.heads, llama.kv_heads, llama.head_dim, llama.max_positions) == (32, 8, 128, 131072)
    assert (llama.architecture, llama.qkv_bias, llama.experts) == ("LlamaForCausalLM", False, 0)


def test_a_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    assert shape_folder(str(tmp_path)) == tmp_path


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ModelLoadError, match="model llama9 is neither a folder nor one of cpu_demo, cpu_qwen2"):
        load_shape("llama9")
