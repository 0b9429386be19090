"""What joins the ranks of a tensor-parallel group: the process group of torch.distributed, and shared words."""

import datetime
import mmap
import os
import socket
import tempfile
from collections.abc import MutableSequence
from contextlib import suppress
from pathlib import Path
from typing import cast

import torch
import torch.distributed as dist

from engine.torch_backend.rank_stop import words_of

COLLECTIVE_TIMEOUT_S = 60
"""How long a rank waits for the others in a sum. One that is gone is noticed at once; this is for one that hangs."""


def device_of(kind: str, rank: int) -> str:
    """The device of a rank: a CUDA device each, or the CPU."""
    return f"cuda:{rank}" if kind == "cuda" else "cpu"


def join_group(kind: str, rank: int, ranks: int, store: str) -> None:
    """Become a member; returns once all ranks are. CUDA devices speak NCCL, CPUs gloo. store: a file all can reach."""
    if kind == "cuda":
        torch.cuda.set_device(rank)
    else:
        # gloo would ask the host's name for an address; ranks of one machine need none but loopback.
        loopback = next((name for _, name in socket.if_nameindex() if name.startswith("lo")), "lo")
        os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback)
    dist.init_process_group(
        "nccl" if kind == "cuda" else "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=ranks,
        timeout=datetime.timedelta(seconds=COLLECTIVE_TIMEOUT_S),
    )
    # NCCL connects at the first sum, and would wait there for ranks that rank 0 has not told to run yet.
    all_reduce(torch.ones(1, device=device_of(kind, rank)))


def new_store() -> str:
    """A path for `join_group`, in a folder of its own."""
    return str(Path(tempfile.mkdtemp(prefix="ranks-")) / "store")


def remove_store(store: str) -> None:
    """Take away the file, and its folder when that is empty: never anything else."""
    with suppress(OSError):  # another rank was quicker
        Path(store).unlink()
    with suppress(OSError):
        Path(store).parent.rmdir()


def leave_group() -> None:
    """End the membership."""
    dist.destroy_process_group()


def all_reduce(tensor: torch.Tensor) -> None:
    """Sum a tensor over all ranks, in place: the same bits on each."""
    dist.all_reduce(tensor)


def new_words_file() -> int:
    """A file descriptor of memory that a child process may share; nothing is left of it once all have closed it."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("ranks")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def map_words(descriptor: int, ranks: int) -> MutableSequence[int]:
    """The group's shared words (`rank_stop`): 64-bit, aligned, so that none is ever seen half written."""
    size = 8 * words_of(ranks)
    os.ftruncate(descriptor, size)
    return cast("MutableSequence[int]", memoryview(mmap.mmap(descriptor, size)).cast("q"))
