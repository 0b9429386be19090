"""Checkpoints, tokenizers and the sentences a user reads when a model cannot be loaded."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.core.batch import Sequence
from engine.model.shape import ModelLoadError
from engine.torch_backend import checkpoint
from engine.torch_backend.checkpoint_folder import write_checkpoint
from engine.torch_backend.models.catalogue import load_model
from engine.torch_backend.models.tensors import TensorSpec
from engine.torch_backend.models.tokenizer import load_tokenizer, train_demo_tokenizer
from engine.torch_backend.models.weight_sources import RandomWeights
from tests.torch_backend.engine_run import logits_of, new_cache, plan, prompt
from tests.torch_backend.families import Family


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("checkpoints") / "cpu_tiny"
    write_checkpoint("cpu_tiny", out)
    return out


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    copy = tmp_path / "model"
    copy.mkdir()
    for file in written.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    return copy


def logits(model: Any) -> torch.Tensor:
    cache = new_cache(model)
    cache.allocate("a", 20)
    return logits_of(plan(model, cache, [Sequence("a", 0, 20)], {"a": prompt(20)}))


def test_a_written_checkpoint_is_the_named_model(written: Path) -> None:
    assert torch.equal(logits(load_model(str(written))), logits(load_model("cpu_tiny")))
    assert not torch.equal(logits(load_model("cpu_tiny", seed=1)), logits(load_model("cpu_tiny")))
    assert torch.equal(logits(load_model(str(written), dummy=True, seed=1)), logits(load_model("cpu_tiny", seed=1)))


def test_transformers_reads_the_checkpoint(written: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    reference = AutoModelForCausalLM.from_pretrained(written)
    with torch.no_grad():
        want = reference(torch.tensor([prompt(20)])).logits[:, -1]
    torch.testing.assert_close(logits(load_model(str(written))), want, rtol=1e-4, atol=1e-5)
    tokenizer = AutoTokenizer.from_pretrained(written)
    text = "The server has 42 tokens; ünïcode too.\n"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert tokenizer(text)["input_ids"] == load_tokenizer(str(written)).encode(text).ids
    assert tokenizer.eos_token_id == 1


def test_what_transformers_saves_in_several_files_is_the_same_model(family: Family, tmp_path: Path) -> None:
    """Of every architecture, with the names its present version gives to positions, experts and number formats."""
    family.reference.save_pretrained(tmp_path, max_shard_size="60KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    assert torch.equal(logits(load_model(str(tmp_path))), logits(family.model))


def test_random_weights_are_the_same_bits_on_every_machine() -> None:
    drawn = RandomWeights(0, torch.device("cpu"), torch.float32).get(TensorSpec("some.weight", (2, 3)))
    assert [value.hex() for value in drawn.flatten().tolist()] == [
        "-0x1.eaa8000000000p-8", "0x1.12a8bc0000000p-1", "-0x1.a5662c0000000p-1", "-0x1.78cd000000000p-1",
        "-0x1.8a65e80000000p-2", "0x1.1297d80000000p-2",
    ]  # fmt: skip


def test_the_tokenizer_is_trained_alike_every_time_and_keeps_to_its_size() -> None:
    first, second = train_demo_tokenizer(4096), train_demo_tokenizer(4096)
    assert first.to_str() == second.to_str()
    assert 3000 < first.get_vocab_size() <= 4096
    assert train_demo_tokenizer(512).get_vocab_size() <= 512


def test_shards_named_by_an_index_are_read(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    names = sorted(weights)
    parts = {"one.safetensors": names[::2], "two.safetensors": names[1::2]}
    for file, part in parts.items():
        save_file({name: weights[name] for name in part}, folder / file)
    (folder / "model.safetensors").unlink()
    index = {"weight_map": {name: file for file, part in parts.items() for name in part}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert torch.equal(logits(load_model(str(folder))), logits(load_model("cpu_tiny")))


def test_a_large_model_is_written_in_several_files(tmp_path: Path, written: Path) -> None:
    out = tmp_path / "sharded"
    write_checkpoint("cpu_tiny", out, file_bytes=60_000)
    files = sorted(path.name for path in out.glob("*.safetensors"))
    assert files[0] == f"model-00001-of-{len(files):05d}.safetensors"
    assert len(files) > 2
    assert not (out / "model.safetensors").exists()
    index = json.loads((out / "model.safetensors.index.json").read_text())
    whole = load_file(written / "model.safetensors")
    assert index["metadata"]["total_size"] == sum(tensor.nbytes for tensor in whole.values())
    assert torch.equal(logits(load_model(str(out))), logits(load_model("cpu_tiny")))


def edit_config(**changes: Any) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        config.update(changes)
        (folder / "config.json").write_text(json.dumps({k: v for k, v in config.items() if v != "absent"}))

    return damage


def edit_weights(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        change(weights)
        save_file(weights, folder / "model.safetensors")

    return damage


DOWN = "model.layers.1.mlp.down_proj.weight"


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (edit_config(architectures=["MixtralForCausalLM"]), "architecture MixtralForCausalLM is not known"),
        (edit_config(torch_dtype="float64"), "dtype float64 is not supported"),
        (edit_weights(lambda weights: weights.pop(DOWN)), f"tensor {DOWN} is missing"),
        (
            edit_weights(lambda weights: weights.update({DOWN: torch.zeros(48, 81)})),
            rf"tensor {DOWN} has shape \[48, 81\], expected \[48, 80\]",
        ),
        (
            edit_weights(lambda weights: weights.update({DOWN: torch.ones(48, 80, dtype=torch.int8)})),
            f"tensor {DOWN} holds I8, which is not supported",
        ),
        (
            edit_config(architectures=["Qwen2ForCausalLM"]),
            r"tensor model\.layers\.0\.self_attn\.q_proj\.bias is missing",
        ),
        (
            edit_config(architectures=["Qwen3ForCausalLM"]),
            r"tensor model\.layers\.0\.self_attn\.q_norm\.weight is missing",
        ),
        (lambda folder: (folder / "config.json").unlink(), "cannot read the model's configuration"),
        (lambda folder: (folder / "model.safetensors").unlink(), "neither model.safetensors nor"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"12345678"), "not a readable safetensors file"),
        (lambda folder: (folder / "model.safetensors.index.json").write_text("[]"), "not a safetensors index"),
    ],
)
def test_what_cannot_be_loaded_is_named_in_one_sentence(
    folder: Path, damage: Callable[[Path], object], sentence: str
) -> None:
    damage(folder)
    with pytest.raises(ModelLoadError, match=sentence) as caught:
        load_model(str(folder))
    assert str(folder) in str(caught.value) or "dtype" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_shard_that_is_not_there_is_named(folder: Path) -> None:
    index = {"weight_map": {"model.embed_tokens.weight": "gone.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelLoadError, match=r"gone\.safetensors: cannot read tensor model\.embed_tokens\.weight"):
        load_model(str(folder))


def test_unknown_names_and_devices_are_refused() -> None:
    with pytest.raises(ModelLoadError, match="model llama9 is neither a folder nor one of cpu_demo, cpu_qwen2, "):
        load_model("llama9")
    with pytest.raises(ModelLoadError, match="device abacus is not one torch knows"):
        load_model("cpu_tiny", device="abacus")
    with pytest.raises(ModelLoadError, match="device meta is not supported"):
        load_model("cpu_tiny", device="meta")


def test_the_command_writes_a_folder_and_refuses_to_replace_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "made" / "tiny"
    assert checkpoint.main(["--model", "cpu_tiny", "--out", str(out)]) == 0
    assert checkpoint.main(["--model", "cpu_tiny", "--out", str(out), "--seed", "1"]) == 0
    assert torch.equal(logits(load_model(str(out))), logits(load_model("cpu_tiny", seed=1)))
    assert [path.name for path in out.parent.iterdir()] == ["tiny"]
    (tmp_path / "notes").mkdir()
    assert checkpoint.main(["--model", "cpu_tiny", "--out", str(tmp_path / "notes")]) == 2
    assert "is not a model folder, it is left as it is" in capsys.readouterr().err


def test_a_folder_without_tokenizer_is_named(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ModelLoadError, match=r"tokenizer\.json: the model's tokenizer is missing"):
        load_tokenizer(str(folder))
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelLoadError, match="cannot read the tokenizer"):
        load_tokenizer(str(folder))


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_a_seed_no_generator_takes_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], seed: int
) -> None:
    with pytest.raises(SystemExit) as ended:
        checkpoint.main(["--model", "cpu_tiny", "--out", str(tmp_path / "x"), "--seed", str(seed)])
    assert ended.value.code == 2
    assert f"--seed must be between 0 and {2**63 - 1}, got {seed}" in capsys.readouterr().err


def test_a_folder_can_be_written_without_weights(tmp_path: Path) -> None:
    assert checkpoint.main(["--model", "cpu_tiny", "--no-weights", "--out", str(tmp_path / "model")]) == 0
    names = sorted(path.name for path in (tmp_path / "model").iterdir())
    assert names == ["config.json", "tokenizer.json", "tokenizer_config.json"]
