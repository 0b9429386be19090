"""POSIX shared memory of a server: which segments it uses, and their removal once nobody does."""

import contextlib
from collections.abc import Iterable
from pathlib import Path

from baselines.servers.process_table import PROC, live_processes

FOLDER = Path("/dev/shm")
PREFIX = f"{FOLDER}/"
DELETED = " (deleted)"


def segments_of(pids: Iterable[int]) -> frozenset[str]:
    """Names under /dev/shm that these processes have mapped or open, and that are still there."""
    names: set[str] = set()
    inodes: set[int] = set()
    for pid in pids:
        _add_mapped(pid, names, inodes)
        _add_open(pid, names)
    # A named semaphore is made under another name and linked to its own: its mapping shows the first one, deleted.
    with contextlib.suppress(OSError):
        names |= {entry.name for entry in FOLDER.iterdir() if inodes and entry.lstat().st_ino in inodes}
    return frozenset(name for name in names if (FOLDER / name).exists())


def remove_unused(names: Iterable[str]) -> tuple[str, ...]:
    """Remove those that no living process uses, as the server would have on an orderly end. Returns what stays."""
    there = {name for name in names if (FOLDER / name).exists()}
    if not there:
        return ()
    used = segments_of(process.pid for process in live_processes())
    for name in there - used:
        with contextlib.suppress(OSError):
            (FOLDER / name).unlink()
    return tuple(sorted(name for name in there if (FOLDER / name).exists()))


def _add_mapped(pid: int, names: set[str], inodes: set[int]) -> None:
    with contextlib.suppress(OSError):
        for line in (PROC / str(pid) / "maps").read_text(errors="replace").splitlines():
            columns = line.split(maxsplit=5)
            if len(columns) == 6 and columns[5].startswith(PREFIX):
                if columns[5].endswith(DELETED):
                    inodes.add(int(columns[4]))
                else:
                    names.add(columns[5].removeprefix(PREFIX))


def _add_open(pid: int, names: set[str]) -> None:
    with contextlib.suppress(OSError):
        for link in (PROC / str(pid) / "fd").iterdir():
            with contextlib.suppress(OSError):
                path = str(link.readlink())
                if path.startswith(PREFIX) and not path.endswith(DELETED):
                    names.add(path.removeprefix(PREFIX))
