"""Messages between the ranks of a tensor-parallel group as frames: a JSON object and raw bytes, never pickles.

A frame is two unsigned 32-bit lengths (big-endian), the message's name and fields as UTF-8 JSON, and its token ids as
they lie in memory (both sides run on one machine).
"""

import dataclasses
import functools
import json
import socket
import struct
import typing
from array import array
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from engine.core.batch import Task
from engine.torch_backend.rank_messages import FromRank, Plan, ToRank

_LENGTHS = struct.Struct("!II")
_KINDS: Mapping[str, type] = {kind.__name__: kind for kind in typing.get_args(ToRank | FromRank)}


class RankChannel:
    """One side of a socket pair. One thread sends at a time, and one receives."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def send(self, message: ToRank | FromRank) -> None:
        """Raises OSError once the other side is gone."""
        self._connection.sendall(encode(message))

    def recv(self) -> ToRank | FromRank:
        """The next message. Raises EOFError once the other side is gone, OSError once this one is closed."""
        fields, raw = _LENGTHS.unpack(self._read(_LENGTHS.size))
        return decode(self._read(fields), self._read(raw))

    def close(self) -> None:
        """Close this side."""
        self._connection.close()

    def _read(self, count: int) -> bytes:
        data = bytearray(count)
        left = memoryview(data)
        while left:
            got = self._connection.recv_into(left)
            if not got:
                raise EOFError
            left = left[got:]
        return bytes(data)


def encode(message: ToRank | FromRank) -> bytes:
    """The bytes of one frame."""
    fields, raw = {f.name: getattr(message, f.name) for f in dataclasses.fields(message)}, b""
    if isinstance(message, Plan):
        raw = fields.pop("token_ids").tobytes()
    text = json.dumps([type(message).__name__, fields], separators=(",", ":"), default=dataclasses.asdict).encode()
    return b"".join((_LENGTHS.pack(len(text), len(raw)), text, raw))


def decode(text: bytes, raw: bytes) -> ToRank | FromRank:
    """The inverse of `encode`, of a frame's two parts."""
    name, fields = json.loads(text)
    if name == Plan.__name__:
        return Plan(_made(Task, fields["task"]), array("i", raw))
    message: ToRank | FromRank = _made(_KINDS[name], fields)
    return message


def _made(kind: Any, value: Any) -> Any:
    """A value as a field of type `kind` holds it."""
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        hints = _hints(kind)
        return kind(**{name: _made(hints[name], each) for name, each in value.items()})
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return kind(value)
    if typing.get_origin(kind) is tuple:
        return tuple(_made(typing.get_args(kind)[0], each) for each in value)
    return value


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)
