"""Text to token ids and back: the tokenizer of the model's folder, or bytes where a model has none."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from engine.serving.settings import SettingsError

REPLACEMENT = "\ufffd"


class Tokenizer(Protocol):
    """What the server needs of a tokenizer."""

    def encode(self, text: str, special_tokens: bool) -> list[int]:
        """Token ids of a text; special_tokens adds those the model begins a text with."""
        ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of token ids, without special tokens; U+FFFD for part of a character."""
        ...


class ByteTokenizer:
    """For models without a tokenizer: a token is a byte of UTF-8; ids from 256 are written as <id>."""

    def encode(self, text: str, special_tokens: bool) -> list[int]:
        """One id per byte; there are no special tokens."""
        del special_tokens
        return list(text.encode())

    def decode(self, token_ids: Sequence[int]) -> str:
        """Bytes as text, other ids by number."""
        pieces = (bytes((t,)) if t < 256 else f"<{t}>".encode() for t in token_ids)
        return b"".join(pieces).decode("utf-8", "replace")


class FolderTokenizer:
    """The tokenizer.json of a Hugging Face folder."""

    def __init__(self, file: Path) -> None:
        try:
            import tokenizers
        except ImportError as error:
            raise SettingsError(f"{file}: the Python package 'tokenizers' is needed to read it") from error
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(file))
        except Exception as error:  # the library raises bare Exception for a bad file
            raise SettingsError(f"{file}: not a tokenizer that can be read ({error})") from error

    def encode(self, text: str, special_tokens: bool) -> list[int]:
        """Token ids of a text."""
        # A batch of one: the library lets other threads run meanwhile only in batches.
        (encoding,) = self._tokenizer.encode_batch_fast([text], add_special_tokens=special_tokens)
        return list(encoding.ids)

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of token ids."""
        return str(self._tokenizer.decode(list(token_ids), skip_special_tokens=True))


class TextStream:
    """Gives each token the text it adds. A token that ends inside a character adds nothing until the rest comes."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        # Text is decoded from a few tokens back: some tokenizers write a token differently at a text's start.
        self._from = 0
        self._shown = 0

    def add(self, token_id: int) -> str:
        """The text this token completes; may be empty."""
        self._ids.append(token_id)
        return self._new_text(whole=False)

    def rest(self) -> str:
        """What an unfinished character leaves at the end."""
        return self._new_text(whole=True)

    def _new_text(self, whole: bool) -> str:
        before = self._tokenizer.decode(self._ids[self._from : self._shown])
        now = self._tokenizer.decode(self._ids[self._from :])
        if not whole and now.endswith(REPLACEMENT) and len(self._ids) - self._shown < 4:
            # A character has four bytes at most: with more tokens pending the bytes are simply invalid.
            return ""
        self._from, self._shown = self._shown, len(self._ids)
        return now[len(before) :]


class ChatTemplate:
    """Messages to one prompt: the template of the model's folder, or `role: content` lines where there is none."""

    def __init__(self, source: str | None, special: dict[str, str]) -> None:
        self._special = special
        self._template: Any = None
        if source is not None:
            from jinja2.sandbox import ImmutableSandboxedEnvironment

            environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
            environment.globals["raise_exception"] = _refuse_messages
            self._template = environment.from_string(source)

    def render(self, messages: Sequence[dict[str, str]]) -> str:
        """The prompt's text. Raises ValueError when the template refuses the messages."""
        if self._template is None:
            lines = [f"{message['role']}: {message['content']}\n" for message in messages]
            return "".join([*lines, "assistant:"])
        from jinja2 import TemplateError

        try:
            return str(self._template.render(messages=messages, add_generation_prompt=True, **self._special))
        except TemplateError as error:
            raise ValueError(str(error)) from error


def load_tokenizer(folder: Path | None) -> Tokenizer:
    """The folder's tokenizer; bytes without a folder or without a tokenizer.json in it."""
    file = folder / "tokenizer.json" if folder else None
    return FolderTokenizer(file) if file and file.is_file() else ByteTokenizer()


def load_chat_template(folder: Path | None) -> ChatTemplate:
    """The chat template of the folder's tokenizer_config.json, if it has one."""
    file = folder / "tokenizer_config.json" if folder else None
    if file is None or not file.is_file():
        return ChatTemplate(None, {})
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
        source = config.get("chat_template")
        special = {name: _token_text(config[name]) for name in ("bos_token", "eos_token") if config.get(name)}
        return ChatTemplate(source if isinstance(source, str) else None, special)
    except (OSError, ValueError, AttributeError) as error:
        raise SettingsError(f"{file}: cannot be read ({error})") from error
    except ImportError as error:
        raise SettingsError(f"{file}: the Python package 'jinja2' is needed for its chat template") from error


def _token_text(token: str | dict[str, Any]) -> str:
    return token if isinstance(token, str) else str(token["content"])


def _refuse_messages(message: str) -> str:
    raise ValueError(message)
