"""Writes a model with random weights as a Hugging Face folder."""

import json
import shutil
import tempfile
from pathlib import Path

import torch
from safetensors.torch import save_file

from engine.model.catalogue import shape_folder
from engine.model.shape import ModelLoadError, read_shape
from engine.torch_backend.models.tensors import list_tensors
from engine.torch_backend.models.tokenizer import BEGIN, END, train_demo_tokenizer
from engine.torch_backend.models.weight_sources import RandomWeights


def write_checkpoint(name: str, out: Path, seed: int = 0) -> None:
    """Write config, random float32 weights by seed and a trained tokenizer; `out` appears whole or not at all.

    Raises ModelLoadError when `out` is there and is no model folder: nothing else is ever replaced.
    """
    if out.exists() and not (out / "config.json").is_file():
        raise ModelLoadError(f"{out} exists and is not a model folder, it is left as it is")
    shape = read_shape(shape_folder(name), name)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as scratch:
        folder = Path(scratch) / "model"
        folder.mkdir()
        shutil.copyfile(shape_folder(name) / "config.json", folder / "config.json")
        source = RandomWeights(seed, torch.device("cpu"), torch.float32)
        weights = {tensor.name: source.get(tensor) for tensor in list_tensors(shape)}
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        train_demo_tokenizer(min(shape.vocab_size, 4096)).save(str(folder / "tokenizer.json"))
        (folder / "tokenizer_config.json").write_text(_tokenizer_config(shape.max_positions), encoding="utf-8")
        if out.exists():
            out.rename(Path(scratch) / "replaced")
        folder.rename(out)


def _tokenizer_config(max_positions: int) -> str:
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BEGIN,
        "eos_token": END,
        "model_max_length": max_positions,
        "clean_up_tokenization_spaces": False,
    }
    return json.dumps(config, indent=2) + "\n"
