"""Fetching public traces, from file:// addresses: checksums, pins, whole files, clear errors."""

import hashlib
import json

import pytest

from workloads.fetch import SOURCES, main, read_sources

CONTENT = b"TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
SHA = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def sources(write, tmp_path):
    def _sources(content=CONTENT, sha256=None, url=None):
        original = write("original.csv", content)
        entry = {"file": "got.csv", "url": url or original.as_uri(), "licence": "CC0", "sha256": sha256}
        return write("sources.yaml", json.dumps({"mine": entry}))

    return _sources


def fetch(sources, tmp_path, *more):
    return main(["--sources", str(sources), "--out", str(tmp_path / "out"), *more])


def test_a_file_with_the_right_checksum_is_kept_and_not_fetched_again(sources, tmp_path, capsys):
    assert fetch(sources(sha256=SHA), tmp_path) == 0
    assert (tmp_path / "out" / "got.csv").read_bytes() == CONTENT
    assert "CC0" in capsys.readouterr().out
    (tmp_path / "original.csv").unlink()
    assert main(["--sources", str(tmp_path / "sources.yaml"), "--out", str(tmp_path / "out")]) == 0
    assert "already there" in capsys.readouterr().out


def test_a_wrong_checksum_keeps_nothing(sources, tmp_path, capsys):
    assert fetch(sources(sha256="0" * 64), tmp_path) == 2
    assert f"has sha256 {SHA}, expected 000" in capsys.readouterr().err
    assert list((tmp_path / "out").iterdir()) == []


def test_an_unknown_checksum_is_printed_and_pinned_at_the_first_fetch(sources, tmp_path, capsys):
    assert fetch(sources(), tmp_path) == 0
    assert f"sha256 {SHA} pinned" in capsys.readouterr().out
    assert json.loads((tmp_path / "out" / "checksums.json").read_text()) == {"got.csv": SHA}
    (tmp_path / "out" / "got.csv").unlink()
    assert fetch(sources(content=b"something else"), tmp_path) == 2
    assert f"expected {SHA}" in capsys.readouterr().err


def test_offline_is_one_sentence_and_leaves_nothing(sources, tmp_path, capsys):
    assert fetch(sources(url="http://127.0.0.1:9/none.csv"), tmp_path) == 2
    error = capsys.readouterr().err
    assert "mine: http://127.0.0.1:9/none.csv cannot be reached" in error
    assert "Traceback" not in error
    assert list((tmp_path / "out").iterdir()) == []


def test_a_git_lfs_pointer_is_not_taken_for_the_file(sources, tmp_path, capsys):
    assert fetch(sources(content=b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n"), tmp_path) == 2
    assert "git-LFS pointer" in capsys.readouterr().err


def test_an_unknown_name_says_which_there_are(sources, tmp_path, capsys):
    assert fetch(sources(), tmp_path, "yours") == 2
    assert "no source named yours; there are mine" in capsys.readouterr().err


def test_list_prints_and_fetches_nothing(sources, tmp_path, capsys):
    assert fetch(sources(), tmp_path, "--list") == 0
    assert "CC0" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


def test_the_committed_sources_are_complete():
    found = read_sources(SOURCES)
    assert {"azure_code_2023", "azure_conv_2023", "mooncake_conversation", "qwen_trace_a", "burstgpt"} <= set(found)
    for source in found.values():
        assert source.url.startswith("https://")
        assert source.licence
        assert source.sha256 is None or len(source.sha256) == 64


@pytest.mark.parametrize(("text", "words"), [("a,b", "expected sources by name"), ("a: [", "not YAML")])
def test_a_file_that_holds_no_sources_is_one_sentence(write, tmp_path, capsys, text, words):
    assert fetch(write("sources.yaml", text), tmp_path) == 2
    told = capsys.readouterr().err
    assert f"sources.yaml: {words}" in told
    assert told.count("\n") == 1


@pytest.mark.parametrize("text", ["[1]", "{"])
def test_pins_that_are_damaged_are_named(sources, tmp_path, capsys, text):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "checksums.json").write_text(text)
    assert fetch(sources(), tmp_path) == 2
    assert "checksums.json: " in capsys.readouterr().err
