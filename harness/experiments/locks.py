"""Locks between processes; the system lets go of them when their holder ends, however it ends."""

import asyncio
import contextlib
import errno
import fcntl
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

WAITING = "waiting for another run's point on this machine to end"
LOOK_AGAIN_S = 0.1


class HeldElsewhereError(RuntimeError):
    """Another process is at it."""


class StoppedWaitingError(Exception):
    """The user interrupted the wait for a lock."""


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


@asynccontextmanager
async def exclusive_when_free(path: Path, stop: asyncio.Event) -> AsyncIterator[None]:
    """As `exclusive`, once nobody else holds it. Raises StoppedWaitingError when `stop` is set before."""
    with contextlib.ExitStack() as holding:
        while True:
            try:
                holding.enter_context(exclusive(path))
                break
            except HeldElsewhereError:
                await _look_again(stop)
        yield


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder's lock, and wait for it. The folder itself is locked, so that no lock file is left behind."""
    with _open_lock(folder) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


@contextmanager
def in_use(folder: Path, when_alone: Callable[[], object]) -> Iterator[None]:
    """Hold a folder as one of its users. when_alone: done first if nobody else is one, and while nobody can become one.

    For a folder of its own: who waits to have it `locked` waits for its users.
    """
    with _open_lock(folder) as descriptor:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pass
        else:
            when_alone()
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield


@contextmanager
def _open_lock(folder: Path) -> Iterator[int]:
    """What to lock for a folder: itself, or a file in it where the file system locks no folders (NFS)."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    except BlockingIOError:
        pass
    except OSError as error:
        if error.errno not in (errno.EBADF, errno.EINVAL, errno.ENOTSUP):
            raise
        os.close(descriptor)
        descriptor = os.open(folder / ".lock", os.O_CREAT | os.O_RDWR, 0o644)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def machine_to_oneself(tell: Callable[[str], None], share: bool = False, path: Path | None = None) -> Iterator[None]:
    """Wait until no other run of this user measures on this machine: two at once would slow each other down.

    share: do not wait (for tests, whose numbers nobody uses). Blocks: on an event loop it is `machine_when_free`.
    """
    with _machine_lock(share, path) as lock:
        if not lock.taken():
            tell(WAITING)
            lock.wait()
        yield


@asynccontextmanager
async def machine_when_free(
    tell: Callable[[str], None], stop: asyncio.Event, share: bool = False, path: Path | None = None
) -> AsyncIterator[None]:
    """As `machine_to_oneself`; the event loop goes on meanwhile. Raises StoppedWaitingError when `stop` is set."""
    with _machine_lock(share, path) as lock:
        if not lock.taken():
            tell(WAITING)
            while not lock.taken():
                await _look_again(stop)
        yield


async def _look_again(stop: asyncio.Event) -> None:
    """Return in a moment. Raises StoppedWaitingError when `stop` is set."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), LOOK_AGAIN_S)
    if stop.is_set():
        raise StoppedWaitingError


class _MachineLock:
    """A lock on an open file; without one, always taken."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def taken(self) -> bool:
        """Take it if nobody has it."""
        if self._descriptor is not None:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        return True

    def wait(self) -> None:
        """Take it once nobody has it."""
        if self._descriptor is not None:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)


@contextmanager
def _machine_lock(share: bool, path: Path | None) -> Iterator[_MachineLock]:
    if share:
        yield _MachineLock(None)
        return
    path = path or Path(tempfile.gettempdir()) / f"flowprefill-measuring-{os.getuid()}.lock"
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        yield _MachineLock(descriptor)
    finally:
        os.close(descriptor)
