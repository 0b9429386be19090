"""Frames between the HTTP process and the engine process: a JSON header and raw bytes, never pickles.

A frame is two unsigned 32-bit lengths (big-endian), the header as UTF-8 JSON, and the raw bytes
(token ids: too many to go through JSON while the engine's interpreter is wanted elsewhere).
"""

import asyncio
import json
import socket
import struct
import threading
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

_LENGTHS = struct.Struct("!II")
MAX_FRAME_BYTES = 256 << 20
Frame = tuple[dict[str, Any], bytes]


class ChannelError(Exception):
    """The other side sent what is not a frame."""


def encode(header: Mapping[str, object], raw: bytes = b"") -> bytes:
    """The bytes of one frame."""
    text = json.dumps(header, separators=(",", ":")).encode()
    return b"".join((_LENGTHS.pack(len(text), len(raw)), text, raw))


def pack_token_ids(token_ids: Sequence[int]) -> bytes:
    """Token ids as native 32-bit integers (both sides run on one machine)."""
    return array("i", token_ids).tobytes()


def unpack_token_ids(raw: bytes) -> tuple[int, ...]:
    """The inverse of `pack_token_ids`."""
    return tuple(memoryview(raw).cast("i"))


async def read_frame(reader: asyncio.StreamReader) -> Frame | None:
    """The next frame; None once the other side is gone."""
    try:
        lengths = _lengths(await reader.readexactly(_LENGTHS.size))
        body = await reader.readexactly(sum(lengths))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    return _decode(body, lengths[0])


class BlockingChannel:
    """The engine's end, for threads: any thread sends, one thread receives."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._reader = connection.makefile("rb")
        self._sending = threading.Lock()

    def send(self, header: Mapping[str, object], raw: bytes = b"") -> None:
        """Send one frame. Raises OSError once the other side is gone."""
        frame = encode(header, raw)
        with self._sending:
            self._connection.sendall(frame)

    def receive(self) -> Frame | None:
        """Block for the next frame; None once the other side is gone."""
        try:
            start = self._reader.read(_LENGTHS.size)
            if len(start) < _LENGTHS.size:
                return None
            lengths = _lengths(start)
            body = self._reader.read(sum(lengths))
        except (OSError, ValueError):
            # ValueError: the file was closed under the read.
            return None
        return _decode(body, lengths[0]) if len(body) == sum(lengths) else None

    def close(self) -> None:
        """Shut both directions; a pending `receive` returns None."""
        try:
            self._connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # the other side was quicker


def _lengths(start: bytes) -> tuple[int, int]:
    header_bytes, raw_bytes = _LENGTHS.unpack(start)
    if header_bytes + raw_bytes > MAX_FRAME_BYTES:
        raise ChannelError(f"a frame of {header_bytes + raw_bytes} bytes is over the limit of {MAX_FRAME_BYTES}")
    return header_bytes, raw_bytes


def _decode(body: bytes, header_bytes: int) -> Frame:
    header = json.loads(body[:header_bytes])
    if not isinstance(header, dict):
        raise ChannelError("the header of a frame is not a JSON object")
    return header, body[header_bytes:]
