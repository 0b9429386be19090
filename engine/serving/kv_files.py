"""Files in memory that carry KV from one process to another: named after their owners, and swept once these are dead.

Plain files, in a folder that is memory on Linux, and not `multiprocessing.shared_memory`: its resource tracker unlinks
segments that another process still uses as soon as one of the processes that opened them ends (before Python 3.13).
"""

import mmap
import os
import re
import tempfile
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

IN_MEMORY = Path("/dev/shm")
_NAME = re.compile(r"flowprefill-kv-(\d+)-(\d+)-(\d+)")


def default_folder() -> Path:
    """Linux's shared memory, or the folder for temporary files where there is none."""
    return IN_MEMORY if IN_MEMORY.is_dir() else Path(tempfile.gettempdir())


@dataclass(frozen=True, slots=True)
class KVFolder:
    """Files of all proxies and instances of this machine that were told of this folder."""

    path: Path

    def create(self, proxy_pid: int, owner_pid: int, number: int, size_bytes: int) -> tuple[str, mmap.mmap]:
        """A new file and its name. Raises OSError, also where the memory is not there: never later, in a write."""
        name = f"flowprefill-kv-{proxy_pid}-{owner_pid}-{number}"
        descriptor = os.open(self.path / name, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        try:
            # A file that is only given its length takes memory page by page, and a full folder kills the writer.
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(descriptor, 0, size_bytes)
            else:  # macOS
                os.ftruncate(descriptor, size_bytes)
            return name, mmap.mmap(descriptor, size_bytes)
        except BaseException:
            self.unlink(name)
            raise
        finally:
            os.close(descriptor)

    def open(self, name: str) -> mmap.mmap:
        """A file's bytes; what is written to them stays with this process. Raises OSError or ValueError."""
        descriptor = os.open(self._file(name), os.O_RDONLY | os.O_NOFOLLOW)
        try:
            return mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY)
        finally:
            os.close(descriptor)

    def unlink(self, name: str) -> None:
        """Who has it open keeps it; nobody finds it any more. Nothing happens when it is gone already."""
        self._file(name).unlink(missing_ok=True)

    def names(self) -> list[str]:
        """All files that are there, of whoever."""
        return [entry.name for entry in self.path.iterdir() if _NAME.fullmatch(entry.name)]

    def sweep(self, proxy_pid: int, keep: Collection[str] = ()) -> list[str]:
        """Unlink what dead processes left; returns the names.

        A file is left when its owner is dead and its proxy, too, or is the one that asks and does not name it in
        `keep` (it may still be received after its owner's end).
        """
        left = []
        for name in self.names():
            proxy, owner = (int(part) for part in name.split("-")[2:4])
            if not _alive(owner) and (not _alive(proxy) or (proxy == proxy_pid and name not in keep)):
                self.unlink(name)
                left.append(name)
        return left

    def _file(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a KV file")
        return self.path / name


def _alive(pid: int) -> bool:
    """Whether the process exists and has not ended: one that nobody has waited for yet (a zombie) is dead."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    with suppress(OSError):  # no /proc: an existing process counts as alive
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
        return state not in ("Z", "X")
    return True
