"""How an engine process is started: its command, its environment, and the channel to it."""

import asyncio
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
INSTANCE_COMMAND = (sys.executable, "-m", "engine.serving.instance")
SMALL_KERNEL_CACHES = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64", "LRU_CACHE_CAPACITY": "64"}
"""Of oneDNN and of torch's layer over it: they keep a kernel of half a megabyte for every number of rows ever seen,
1,024 each unless told; prompts have a thousand lengths. 64 hold those of a dozen lengths in turn."""
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
"""malloc asks for pages of 2 MB where Linux gives them on request: prefills on a CPU take 3 to 5 % less time."""


def engine_environment(threads: int) -> dict[str, str]:
    """Environment of a process that computes as an engine does: this one's, with what makes kernels fast and lean."""
    paths = [str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **SMALL_KERNEL_CACHES,
        **HUGE_PAGES,
        **os.environ,
        "OMP_NUM_THREADS": str(threads),
        "PYTHONPATH": os.pathsep.join(paths),
    }


async def start_process(
    command: Sequence[str], threads: int
) -> tuple[asyncio.subprocess.Process, asyncio.StreamReader, asyncio.StreamWriter]:
    """The process and the two directions of its channel. `--channel-fd N` is added to the command."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = await asyncio.create_subprocess_exec(
            *command,
            "--channel-fd",
            str(theirs.fileno()),
            stdin=asyncio.subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
            env=engine_environment(threads),
        )
    reader, writer = await asyncio.open_connection(sock=ours)
    return process, reader, writer
