"""What instances have handed over and nobody has received yet: freed once each, swept when its owners are dead."""

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path

from engine.serving.kv_files import KVFolder, default_folder
from engine.serving.settings import SettingsError

LOG = logging.getLogger(__name__)


class HandedOver:
    """A proxy's books of the KV between two instances, by tickets. folder: where it lies; "" = in memory."""

    def __init__(self, folder: str) -> None:
        self._files = KVFolder(Path(folder or default_folder()))
        self._tickets: set[str] = set()
        self._background: set[asyncio.Future[object]] = set()

    @property
    def folder(self) -> str:
        """Where instances put it."""
        return str(self._files.path)

    def remove_old(self) -> None:
        """Free what dead processes left before this one. Raises SettingsError for a folder that cannot be used."""
        try:
            for name in self._files.sweep(os.getpid()):
                LOG.info("removed %s, which a dead process had left", name)
        except OSError as error:
            raise SettingsError(f"--hand-over-folder {self.folder}: cannot be used ({error.strerror})") from error

    def sent(self, ticket: str) -> None:
        """KV is on its way; it outlives the instance that sent it."""
        self._tickets.add(ticket)

    def received(self, ticket: str) -> None:
        """It is wanted no more; freed once, however often that is told."""
        if ticket in self._tickets:
            self._tickets.discard(ticket)
            self.free(ticket)

    def free(self, ticket: str) -> None:
        """Give its memory back."""
        self._later(lambda: self._files.unlink(ticket))

    def sweep(self) -> None:
        """Free what an instance that died meanwhile has left, but not what is still on its way."""
        self._later(lambda: self._files.sweep(os.getpid(), frozenset(self._tickets)))

    async def close(self) -> None:
        """Free everything; all instances have ended."""
        await asyncio.gather(*self._background, return_exceptions=True)
        self._files.sweep(os.getpid())

    def _later(self, work: Callable[[], object]) -> None:
        """On another thread: giving gigabytes back takes long enough to hold up every stream."""
        future = asyncio.get_running_loop().run_in_executor(None, work)
        self._background.add(future)
        future.add_done_callback(self._background.discard)
