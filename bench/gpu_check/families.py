"""A tiny random model of each architecture, and transformers' model of the same files."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import torch

from bench.families import FAMILIES
from engine.model.catalogue import shape_folder
from engine.torch_backend.checkpoint_folder import write_checkpoint

LLAMA_ROPE: Final = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def write_families(scratch: Path) -> Iterator[tuple[str, Path]]:
    """Two layers of each; the Llama with scaled positions, as its releases have them."""
    for name in FAMILIES:
        config = json.loads((shape_folder(name) / "config.json").read_text(encoding="utf-8"))
        config |= {"num_hidden_layers": 2, "vocab_size": 512}
        if name == "cpu_demo":
            config["rope_scaling"] = LLAMA_ROPE
        shape = scratch / f"{name}-shape"
        shape.mkdir(exist_ok=True)
        (shape / "config.json").write_text(json.dumps(config), encoding="utf-8")
        folder = scratch / name
        if not folder.is_dir():
            write_checkpoint(str(shape), folder)
        yield name, folder


def transformers_model(folder: Path, device: str, dtype: torch.dtype) -> Any:
    """Their model of these files."""
    from transformers import AutoModelForCausalLM

    reference: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    return reference.to(device).eval()
