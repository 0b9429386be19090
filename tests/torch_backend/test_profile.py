import json
from pathlib import Path

import pytest

from engine.torch_backend import profile, profiling


def test_the_file_holds_prefills_and_operators_up_to_the_length_asked(tmp_path: Path) -> None:
    out = tmp_path / "profiles" / "tiny.json"
    assert profile.main(["--model", "cpu_tiny", "--out", str(out), "--max-tokens", "320", "--rounds", "1"]) == 0
    content = json.loads(out.read_text())
    assert {"model", "device", "threads", "torch", "attention", "prefill", "operators"} <= content.keys()
    assert (content["model"], content["threads"]) == ("cpu_tiny", 1)
    lengths = [(entry["new_tokens"], entry["context_tokens"]) for entry in content["prefill"]]
    assert lengths == [(n, 0) for n in profiling.LENGTHS if n <= 320] + [(64, 256), (128, 128)]
    kinds = {"embedding", "qkv_proj", "attention", "o_proj", "gate_up_proj", "down_proj", "head"}
    assert {entry["operator"] for entry in content["operators"]} == kinds
    measured = {(entry["new_tokens"], entry["context_tokens"]) for entry in content["operators"]}
    assert measured == {(new, context) for new, context in profiling.OPERATOR_LENGTHS if new + context <= 320}
    assert len(content["operators"]) == len(kinds) * len(measured)
    assert all(entry["seconds"] > 0 for entry in content["prefill"] + content["operators"])
    assert [path.name for path in out.parent.iterdir()] == ["tiny.json"]


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [(["--model", "none"], "model none is neither"), (["--device", "abacus"], "device abacus is not one torch knows")],
)
def test_mistakes_are_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], wrong: list[str], sentence: str
) -> None:
    assert profile.main([*wrong, "--out", str(tmp_path / "x.json")]) == 2
    assert sentence in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (["--max-tokens", "0"], "--max-tokens must be at least 1"),
        (["--rounds", "0"], "--rounds must be at least 1"),
        (["--tensor-parallel", "0"], "--tensor-parallel must be at least 1"),
        (["--first-cpu", "4000"], "--first-cpu: CPU 4000 is not available"),
    ],
)
def test_numbers_that_measure_nothing_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], wrong: list[str], sentence: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        profile.main(["--model", "cpu_tiny", *wrong, "--out", str(tmp_path / "x.json")])
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err
