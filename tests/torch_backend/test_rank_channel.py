"""What ranks tell each other comes out of the bytes as it went in."""

import socket
import threading
from array import array

import pytest

from engine.core.batch import Sequence, Task, TaskKind
from engine.model.granularity import Granularity, TileSettings
from engine.torch_backend.rank_channel import RankChannel
from engine.torch_backend.rank_messages import (
    Allocate,
    Drop,
    Ended,
    Free,
    FromRank,
    Hello,
    Join,
    Leave,
    ModelChoice,
    Plan,
    Ready,
    Refused,
    Run,
    ToRank,
)
from engine.torch_backend.settings import ExecutorSettings

TASK = Task(7, TaskKind.PREFILL, (Sequence("ä", 0, 3, last=False), Sequence("b\n", 2**40, 1)))
EXECUTOR = ExecutorSettings(granularity=Granularity.TILE, tiles=TileSettings(), kv_blocks=3, device_flops_per_s=1e13)
MESSAGES = [
    Join(1, 2, "store", ModelChoice("cpu_tiny", "cpu", None, dummy=True, seed=5), EXECUTOR),
    Allocate("a", 5), Free("a"), Plan(TASK, array("i", [0, -1, 2**31 - 1])), Plan(TASK, array("i")), Run(7), Drop(7),
    Leave(), Hello(), Ready(), Refused("no"), Ended(3, None), Ended(0, "ValueError: \u2028"),
]  # fmt: skip


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_comes_out_as_it_went_in(message: ToRank | FromRank) -> None:
    ours, theirs = map(RankChannel, socket.socketpair())
    ours.send(message)
    got = theirs.recv()
    assert got == message
    assert type(got) is type(message)
    if isinstance(message, Join):
        assert isinstance(got, Join)
        assert got.executor.granularity is Granularity.TILE
    ours.close()
    with pytest.raises(EOFError):
        theirs.recv()
    theirs.close()


def test_a_prompt_longer_than_the_sockets_buffer_arrives_whole() -> None:
    ours, theirs = map(RankChannel, socket.socketpair())
    long = Plan(TASK, array("i", range(1_000_000)))
    sending = threading.Thread(target=lambda: (ours.send(long), ours.send(Run(7))), daemon=True)
    sending.start()
    assert theirs.recv() == long
    assert theirs.recv() == Run(7)
    sending.join(120)
    ours.close()
    theirs.close()


def test_half_a_message_is_the_end() -> None:
    ours, theirs = socket.socketpair()
    ours.sendall(b"\0\0\0\x09\0\0\0\0[")
    ours.close()
    with pytest.raises(EOFError):
        RankChannel(theirs).recv()
