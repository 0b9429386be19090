"""Locks between processes; the system lets go of them when their holder ends, however it ends."""

import fcntl
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


class HeldElsewhereError(RuntimeError):
    """Another process is at it."""


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the lock file `path`. Raises HeldElsewhereError at once when another process holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise HeldElsewhereError("it is being measured by another run") from error
        try:
            yield
        finally:
            # Only a holder removes the file; whoever opened it before gets a lock on a name that is gone, and finds
            # the point finished, or its writing refused.
            path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


@contextmanager
def machine_to_oneself(tell: Callable[[str], None], share: bool = False, path: Path | None = None) -> Iterator[None]:
    """Wait until no other run of this user measures on this machine: two at once would slow each other down.

    share: do not wait (for tests, whose numbers nobody uses).
    """
    if share:
        yield
        return
    path = path or Path(tempfile.gettempdir()) / f"flowprefill-measuring-{os.getuid()}.lock"
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell("waiting for another run's point on this machine to end")
            _wait_for(descriptor)
        yield
    finally:
        os.close(descriptor)


def _wait_for(descriptor: int) -> None:
    """Wait for the lock; Ctrl-C and SIGTERM end the wait as KeyboardInterrupt.

    Else they would not: flock goes on after a handler that only notes the signal, and a campaign's does no more.
    """
    numbers = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
    before = {number: signal.signal(number, signal.default_int_handler) for number in numbers}
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
