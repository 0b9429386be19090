"""Who lives on this machine, from Linux's /proc: the processes of one server, whatever they forked. Empty elsewhere."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
ZOMBIE = "Z"


@dataclass(frozen=True, slots=True)
class LiveProcess:
    """One process. started_ticks tells it from a later one with the same pid."""

    pid: int
    started_ticks: int
    parent: int
    session: int
    name: str


def live_processes() -> tuple[LiveProcess, ...]:
    """Every process that is no zombie."""
    found = (_read(entry) for entry in PROC.iterdir() if entry.name.isdigit()) if PROC.is_dir() else ()
    return tuple(process for process in found if process is not None)


def still_alive(processes: Iterable[LiveProcess]) -> tuple[LiveProcess, ...]:
    """Those of them that have not ended; a new process under an old pid does not count."""
    now = {(process.pid, process.started_ticks) for process in live_processes()}
    return tuple(process for process in processes if (process.pid, process.started_ticks) in now)


def family(leader: int, mark: str) -> tuple[LiveProcess, ...]:
    """The session of `leader`, what carries `mark` in its environment, and every descendant of these.

    Three signs, since each can be lost: a child may open a session of its own, a process that writes its title over its
    environment loses the mark, an orphan loses its parent.
    """
    living = live_processes()
    wanted = mark.encode()
    inside = {p.pid for p in living if p.session == leader or p.pid == leader or wanted in _environment(p.pid)}
    grew = True
    while grew:
        more = {p.pid for p in living if p.parent in inside} - inside
        grew = bool(more)
        inside |= more
    return tuple(p for p in living if p.pid in inside)


def title(pid: int) -> str:
    """What a process calls itself (its command line); "" when it is gone."""
    try:
        return (PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def pin_threads(pid: int, cores: frozenset[int]) -> None:
    """Move every thread of a process to these cores; threads it starts later inherit them."""
    try:
        threads = [int(entry.name) for entry in (PROC / str(pid) / "task").iterdir()]
    except OSError:
        return
    for thread in threads:
        try:
            os.sched_setaffinity(thread, cores)
        except ProcessLookupError:
            continue


def _read(entry: Path) -> LiveProcess | None:
    try:
        before, _, after = (entry / "stat").read_text(errors="replace").rpartition(")")
    except OSError:
        return None
    fields = after.split()
    if fields[0] == ZOMBIE:
        return None
    return LiveProcess(
        pid=int(entry.name),
        started_ticks=int(fields[19]),
        parent=int(fields[1]),
        session=int(fields[3]),
        name=before.partition("(")[2],
    )


def _environment(pid: int) -> bytes:
    try:
        return (PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return b""
