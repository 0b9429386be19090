"""Writes a model with random weights as a Hugging Face folder."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import save_file

from engine.model.catalogue import shape_folder
from engine.model.shape import ModelLoadError, ModelShape, read_shape
from engine.torch_backend.models.catalogue import torch_dtype
from engine.torch_backend.models.tensors import list_tensors
from engine.torch_backend.models.tokenizer import BEGIN, END, train_demo_tokenizer
from engine.torch_backend.models.weight_sources import RandomWeights

FILE_BYTES = 5_000_000_000
"""A larger model is written in several files of about this size, as those on the Hugging Face hub are."""


def write_checkpoint(name: str, out: Path, seed: int = 0, file_bytes: int = FILE_BYTES, weights: bool = True) -> None:
    """Write config, random weights by seed and a trained tokenizer; `out` appears whole or not at all.

    name: one of `model_names()`, or a folder with a config.json. Weights are in the number format its config names.
    weights: False = config and tokenizer alone, for a server that draws weights of its own.

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
        if weights:
            _write_weights(shape, folder, seed, file_bytes)
        train_demo_tokenizer(min(shape.vocab_size, 4096)).save(str(folder / "tokenizer.json"))
        (folder / "tokenizer_config.json").write_text(_tokenizer_config(shape.max_positions), encoding="utf-8")
        if out.exists():
            out.rename(Path(scratch) / "replaced")
        folder.rename(out)


def _write_weights(shape: ModelShape, folder: Path, seed: int, file_bytes: int) -> None:
    """One `model.safetensors`, or several files and their index. Holds the tensors of one file at a time."""
    files: list[list[str]] = []
    total_bytes = 0
    for part in _parts(shape, seed, file_bytes):
        save_file(part, folder / f"{len(files)}.partial", metadata={"format": "pt"})
        files.append(list(part))
        total_bytes += sum(tensor.nbytes for tensor in part.values())
    if len(files) == 1:
        (folder / "0.partial").rename(folder / "model.safetensors")
        return
    names = [f"model-{number + 1:05d}-of-{len(files):05d}.safetensors" for number in range(len(files))]
    for number, name in enumerate(names):
        (folder / f"{number}.partial").rename(folder / name)
    weight_map = {tensor: name for name, tensors in zip(names, files, strict=True) for tensor in tensors}
    index = {"metadata": {"total_size": total_bytes}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def _parts(shape: ModelShape, seed: int, file_bytes: int) -> Iterator[dict[str, torch.Tensor]]:
    """All tensors by name, `file_bytes` at a time, or one tensor where it is larger."""
    source = RandomWeights(seed, torch.device("cpu"), torch_dtype(shape.dtype))
    part: dict[str, torch.Tensor] = {}
    for spec in list_tensors(shape):
        tensor = source.get(spec)
        if part and sum(held.nbytes for held in part.values()) + tensor.nbytes > file_bytes:
            yield part
            part = {}
        part[spec.name] = tensor
    yield part


def _tokenizer_config(max_positions: int) -> str:
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BEGIN,
        "eos_token": END,
        "model_max_length": max_positions,
        "clean_up_tokenization_spaces": False,
    }
    return json.dumps(config, indent=2) + "\n"
