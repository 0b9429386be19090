"""Frames over a socket pair."""

import asyncio
import socket
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.serving.channel import (
    MAX_FRAME_BYTES,
    BlockingChannel,
    ChannelError,
    encode,
    pack_token_ids,
    read_frame,
    unpack_token_ids,
)


@given(st.lists(st.integers(0, 2**31 - 1)))
@settings(max_examples=50)
def test_token_ids_survive(token_ids: list[int]) -> None:
    assert unpack_token_ids(pack_token_ids(token_ids)) == tuple(token_ids)


async def fed(pieces: list[bytes]) -> list[object]:
    reader = asyncio.StreamReader()
    for piece in pieces:
        reader.feed_data(piece)
    reader.feed_eof()
    frames = []
    while (frame := await read_frame(reader)) is not None:
        frames.append(frame)
    return frames


@given(st.binary(max_size=50), st.integers(1, 7))
@settings(max_examples=50)
def test_frames_survive_any_cut(raw: bytes, size: int) -> None:
    sent = encode({"kind": "é"}, raw) + encode({"kind": "last"})
    pieces = [sent[i : i + size] for i in range(0, len(sent), size)]
    assert asyncio.run(fed(pieces)) == [({"kind": "é"}, raw), ({"kind": "last"}, b"")]


def test_half_a_frame_is_the_end() -> None:
    assert asyncio.run(fed([encode({"kind": "whole"}), encode({"kind": "half"}, b"abc")[:-1]])) == [
        ({"kind": "whole"}, b"")
    ]


def test_what_is_no_frame_is_an_error() -> None:
    with pytest.raises(ChannelError, match=f"over the limit of {MAX_FRAME_BYTES}"):
        asyncio.run(fed([b"\xff" * 8]))


def test_blocking_channel_both_ways_and_its_end() -> None:
    left, right = (BlockingChannel(end) for end in socket.socketpair())
    received = []
    thread = threading.Thread(
        target=lambda: received.extend([right.receive(), right.receive(), right.receive()]), daemon=True
    )
    thread.start()
    left.send({"n": 1}, b"x" * 1_000_000)
    left.send({"n": 2})
    left.close()
    thread.join()
    assert received == [({"n": 1}, b"x" * 1_000_000), ({"n": 2}, b""), None]
    with pytest.raises(OSError):  # noqa: PT011  # whichever error the platform has for a closed peer
        left.send({"n": 3})
