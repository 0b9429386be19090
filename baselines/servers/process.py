"""One server as a child process: its own process group, its log in a file, stopped with all its children."""

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

_PR_SET_PDEATHSIG = 1


class ServerProcessError(RuntimeError):
    """The server did not start or died; the message ends with the last lines of its log."""


def free_port(host: str = "127.0.0.1") -> int:
    """A TCP port nobody listens on now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


class ServerProcess:
    """A started server. Use as a context manager, or call `stop`.

    argv: the command; argv[0] is looked up on the path.
    log_path: standard output and error go here, appended.
    env: variables added to this process's own.
    """

    def __init__(self, argv: Sequence[str], log_path: Path, env: Mapping[str, str] | None = None) -> None:
        self.argv = tuple(argv)
        self.log_path = log_path
        log_path.parent.mkdir(parents=True, exist_ok=True)
        self._log: BinaryIO = log_path.open("ab")
        self.log_start = self._log.tell()
        try:
            self._child = subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                start_new_session=True,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - one system call, no lock is taken
            )
        except OSError as error:
            self._log.close()
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

    def stop(self, grace_s: float = 10.0) -> None:
        """Ask the server to end, then end it with all its children. Safe to call twice."""
        if self._child.poll() is None:
            self._child.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(grace_s)
        self.kill()

    def kill(self) -> None:
        """End every process of the group now."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()
        self._log.close()

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
