"""KV through memory that processes share: whole and checked on receipt, and never left behind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from engine.serving.kv_files import KVFolder, default_folder
from engine.serving.shared_memory_transport import SharedMemoryTransport
from engine.torch_backend.kv_transport import KVHandOverError, KVLayout, LayerKV

LAYOUT = KVLayout(layers=3, tokens=5, kv_heads=2, head_dim=4, dtype="float32")


def kv(layout: KVLayout = LAYOUT) -> list[LayerKV]:
    torch.manual_seed(0)
    shape = (layout.layers, 2, *layout.layer_shape)
    both = torch.randn(shape).to(layout.torch_dtype)
    return [(layer[0], layer[1]) for layer in both]


@pytest.fixture
def folder(tmp_path: Path) -> KVFolder:
    return KVFolder(tmp_path)


@pytest.fixture
def transport(folder: KVFolder) -> SharedMemoryTransport:
    return SharedMemoryTransport(folder, os.getpid())


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_what_is_received_is_what_was_sent(transport: SharedMemoryTransport, dtype: str) -> None:
    layout = KVLayout(3, 5, 2, 4, dtype)
    ticket = transport.send(layout, kv(layout), b"sampler", "decode-0")
    with transport.receive(ticket, layout) as received:
        layers = list(received.layers)
        assert received.sampler == b"sampler"
        for (keys, values), (sent_keys, sent_values) in zip(layers, kv(layout), strict=True):
            assert torch.equal(keys, sent_keys)
            assert torch.equal(values, sent_values)


def test_a_file_may_be_received_again_and_is_freed_once(transport: SharedMemoryTransport, folder: KVFolder) -> None:
    ticket = transport.send(LAYOUT, kv(), b"", "decode-0")
    for _ in range(2):
        with transport.receive(ticket, LAYOUT) as received:
            assert len(list(received.layers)) == 3
    transport.free(ticket)
    transport.free(ticket)
    assert folder.names() == []
    with pytest.raises(KVHandOverError, match="cannot be read"), transport.receive(ticket, LAYOUT):
        pass


@pytest.mark.parametrize(
    "wrong",
    [
        KVLayout(2, 5, 2, 4, "float32"),
        KVLayout(3, 6, 2, 4, "float32"),
        KVLayout(3, 5, 4, 2, "float32"),
        KVLayout(3, 5, 2, 4, "float16"),
    ],
)
def test_another_layout_is_refused(transport: SharedMemoryTransport, wrong: KVLayout) -> None:
    ticket = transport.send(LAYOUT, kv(), b"", "decode-0")
    with pytest.raises(KVHandOverError, match="is expected"), transport.receive(ticket, wrong):
        pass


@pytest.mark.parametrize("damage", ["cut", "grown", "no header", "empty"])
def test_a_damaged_file_is_refused(transport: SharedMemoryTransport, folder: KVFolder, damage: str) -> None:
    ticket = transport.send(LAYOUT, kv(), b"ab", "decode-0")
    file = folder.path / ticket
    content = file.read_bytes()
    file.write_bytes(
        {"cut": content[:-1], "grown": content + b"x", "no header": b"\xff" * len(content), "empty": b""}[damage]
    )
    with pytest.raises(KVHandOverError), transport.receive(ticket, LAYOUT):
        pass


def test_a_send_that_breaks_leaves_nothing(transport: SharedMemoryTransport, folder: KVFolder) -> None:
    with pytest.raises(ValueError, match="shorter"):
        transport.send(LAYOUT, kv()[:2], b"", "decode-0")
    assert folder.names() == []


def test_memory_that_is_not_there_is_told_before_anything_is_written(folder: KVFolder) -> None:
    with pytest.raises(OSError, match=r"space|large"):
        folder.create(1, 2, 3, 1 << 60)
    assert folder.names() == []


def test_a_name_from_outside_opens_nothing(folder: KVFolder) -> None:
    with pytest.raises(ValueError, match="no name of a KV file"):
        folder.open("../etc/passwd")


def test_only_what_the_dead_left_is_swept(folder: KVFolder) -> None:
    mine, dead = os.getpid(), dead_pid()
    alive = folder.create(mine, mine, 0, 64)[0]
    orphan = folder.create(mine, dead, 0, 64)[0]
    wanted = folder.create(mine, dead, 1, 64)[0]
    of_dead_proxy = folder.create(dead, dead, 2, 64)[0]
    of_other_proxy = folder.create(os.getppid(), dead, 3, 64)[0]
    (folder.path / "flowprefill-kv-notes.txt").touch()
    assert sorted(folder.sweep(mine, keep=[wanted])) == sorted([orphan, of_dead_proxy])
    assert sorted(folder.names()) == sorted([alive, wanted, of_other_proxy])


def test_closing_unlinks_what_this_process_sent(transport: SharedMemoryTransport, folder: KVFolder) -> None:
    transport.send(LAYOUT, kv(), b"", "decode-0")
    other = folder.create(os.getpid(), dead_pid(), 0, 64)[0]
    transport.close()
    assert folder.names() == [other]


def test_linux_shares_memory() -> None:
    assert default_folder() == Path("/dev/shm") or not Path("/dev/shm").is_dir()
