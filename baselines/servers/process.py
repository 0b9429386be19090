"""One server as a child process: its own process group, its log in a file, stopped with all its children."""

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from baselines.servers.graphics_memory import holders_of_graphics_memory
from baselines.servers.ports import port_owner, port_taken
from baselines.servers.process_table import LiveProcess, family, still_alive
from baselines.servers.shared_memory import remove_unused, segments_of

_PR_SET_PDEATHSIG = 1
MARK = "FLOWPREFILL_SERVER"
"""Environment variable that every process of a server inherits; its value tells the servers apart."""
KILL_DEADLINE_S = 10.0
POLL_S = 0.02


class ServerProcessError(RuntimeError):
    """The server did not start or died; the message ends with the last lines of its log."""


class ServerProcess:
    """A started server. Use as a context manager, or call `stop`.

    argv: the command; argv[0] is looked up on the path.
    log_path: standard output and error go here, appended.
    env: variables added to this process's own.
    port: refused with its owner's name when somebody listens on it already; None = the caller knows it is free.
    scratch: give it a folder for temporary files of its own, removed when it stops.
    """

    def __init__(
        self,
        argv: Sequence[str],
        log_path: Path,
        env: Mapping[str, str] | None = None,
        *,
        port: int | None = None,
        scratch: bool = False,
    ) -> None:
        if port is not None and port_taken(port):
            raise ServerProcessError(f"port {port} is taken by {port_owner(port)}")
        self.argv = tuple(argv)
        self.log_path = log_path
        self.port = port
        self._mark = uuid.uuid4().hex
        self._known: dict[int, LiveProcess] = {}
        self._segments: frozenset[str] = frozenset()
        log_path.parent.mkdir(parents=True, exist_ok=True)
        self._log: BinaryIO = log_path.open("ab")
        self.log_start = self._log.tell()
        # Short, for it holds sockets: their paths may have 107 characters.
        self._scratch = Path(tempfile.mkdtemp(prefix="server-")) if scratch else None
        own = {MARK: self._mark, **({"TMPDIR": str(self._scratch)} if self._scratch else {})}
        try:
            self._child = subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **own, **(env or {})},
                start_new_session=True,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - one system call, no lock is taken
            )
        except OSError as error:
            self._log.close()
            self._remove_scratch()
            raise ServerProcessError(f"cannot start {argv[0]}: {error}") from error

    @property
    def pid(self) -> int:
        """Process id, also the id of its process group."""
        return self._child.pid

    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._child.poll()

    def require_alive(self) -> None:
        """Raise ServerProcessError when the server has exited."""
        code = self.exit_code()
        if code is not None:
            raise ServerProcessError(f"the server exited with code {code}; its last words: {self.last_words()}")

    def last_words(self, lines: int = 5) -> str:
        """The end of the log, on one line."""
        with contextlib.suppress(ValueError):
            self._log.flush()
        text = self.log_path.read_bytes()[self.log_start :].decode(errors="replace")
        return " | ".join(line.strip() for line in text.splitlines()[-lines:] if line.strip()) or "(nothing)"

    def members(self) -> tuple[LiveProcess, ...]:
        """The server and everything it started, as far as it lives. Each call remembers whom it saw."""
        found = family(self._child.pid, self._mark)
        self._known.update((process.pid, process) for process in found)
        self._segments |= segments_of(process.pid for process in found)
        return found

    def stop(self, grace_s: float = 10.0) -> None:
        """Ask the server to end, then end it with all its children. Safe to call twice."""
        self.members()
        if self._child.poll() is None:
            self._child.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(grace_s)
        self.kill()

    def kill(self) -> None:
        """End every process of the server now, those outside its group, too."""
        deadline_s = time.monotonic() + KILL_DEADLINE_S
        while True:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._child.pid, signal.SIGKILL)
            self.members()
            left = [process for process in still_alive(self._known.values()) if process.pid != self._child.pid]
            for process in left:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(process.pid, signal.SIGKILL)
            if not left or time.monotonic() > deadline_s:
                break
            time.sleep(POLL_S)
        self._child.wait()
        self._log.close()
        self._remove_scratch()
        remove_unused(self._segments)

    def left_behind(self) -> tuple[str, ...]:
        """After `stop`: what is still there of the server, a sentence each; empty when all is free again."""
        found = [f"pid {process.pid} ({process.name}) lives on" for process in still_alive(self._known.values())]
        if self.port is not None and port_taken(self.port):
            found.append(f"port {self.port} is still taken by {port_owner(self.port)}")
        found += [f"shared memory segment {name} is still there" for name in remove_unused(self._segments)]
        holders = holders_of_graphics_memory() & set(self._known)
        found += [f"pid {pid} still holds memory of the GPU" for pid in sorted(holders)]
        return tuple(found)

    def _remove_scratch(self) -> None:
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def __enter__(self) -> "ServerProcess":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _die_with_parent() -> None:
    """In the child, before exec: a killed harness must not leave its servers behind (Linux only)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
