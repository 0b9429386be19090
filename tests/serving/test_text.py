"""Tokenizers and text that comes token by token."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.serving.settings import SettingsError
from engine.serving.text import ByteTokenizer, TextStream, load_chat_template, load_tokenizer


@given(st.text(max_size=20))
@settings(max_examples=100)
def test_streamed_text_is_the_text(text: str) -> None:
    tokenizer = ByteTokenizer()
    stream = TextStream(tokenizer)
    pieces = [stream.add(t) for t in tokenizer.encode(text, special_tokens=True)]
    assert "".join([*pieces, stream.rest()]) == text
    assert not any("\ufffd" in piece for piece in pieces) or "\ufffd" in text


def test_a_character_comes_with_its_last_byte() -> None:
    stream = TextStream(ByteTokenizer())
    assert [stream.add(byte) for byte in "a€b".encode()] == ["a", "", "", "€", "b"]


def test_an_unfinished_character_is_shown_at_the_end() -> None:
    stream = TextStream(ByteTokenizer())
    assert stream.add(0xE2) == ""
    assert stream.rest() == "\ufffd"


def test_invalid_bytes_do_not_hold_the_text_back_for_ever() -> None:
    stream = TextStream(ByteTokenizer())
    shown = [stream.add(0xFF) for _ in range(8)]
    assert "".join(shown) == "\ufffd" * 8


def test_ids_beyond_bytes_are_shown_by_number() -> None:
    assert ByteTokenizer().decode([104, 300, 105]) == "h<300>i"


def test_the_tokenizer_of_a_folder(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    words.save(str(tmp_path / "tokenizer.json"))
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.encode("b a c", special_tokens=True) == [1, 0, 2]
    stream = TextStream(tokenizer)
    assert "".join([stream.add(1), stream.add(0), stream.rest()]) == "b a"


def test_a_broken_tokenizer_is_one_sentence(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(SettingsError, match=r"tokenizer\.json: not a tokenizer that can be read"):
        load_tokenizer(tmp_path)


def test_the_chat_template_of_a_folder(tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    source = (
        "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
        "{% if messages | length > 1 %}{{ raise_exception('too many') }}{% endif %}"
    )
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"chat_template": source, "bos_token": {"content": "<s>"}})
    )
    template = load_chat_template(tmp_path)
    message = {"role": "user", "content": "hi"}
    assert template.render([message]) == "<s>[user]hi"
    with pytest.raises(ValueError, match="too many"):
        template.render([message, message])


def test_without_a_template_messages_are_lines() -> None:
    assert load_chat_template(None).render([{"role": "user", "content": "hi"}]) == "user: hi\nassistant:"
