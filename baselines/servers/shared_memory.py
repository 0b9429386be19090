"""POSIX shared memory of a server: which segments it uses, and their removal once nobody does."""

import contextlib
from collections.abc import Iterable
from pathlib import Path

from baselines.servers.process_table import PROC, live_processes

FOLDER = Path("/dev/shm")


def segments_of(pids: Iterable[int]) -> frozenset[str]:
    """Names under /dev/shm that these processes have mapped or open, and that are still there."""
    found: set[str] = set()
    for pid in pids:
        found |= _in_use(pid)
    return frozenset(name for name in found if (FOLDER / name).exists())


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


def _in_use(pid: int) -> set[str]:
    folder, prefix = PROC / str(pid), f"{FOLDER}/"
    paths: list[str] = []
    with contextlib.suppress(OSError):
        maps = (folder / "maps").read_text(errors="replace").splitlines()
        paths += [line.split(maxsplit=5)[5] for line in maps if prefix in line]
    with contextlib.suppress(OSError):
        for link in (folder / "fd").iterdir():
            with contextlib.suppress(OSError):
                paths.append(str(link.readlink()))
    inside = [path for path in paths if path.startswith(prefix) and not path.endswith(" (deleted)")]
    return {path.removeprefix(prefix) for path in inside}
