"""Back-pressure: which decode instance has room for the KV of a request, and who waits for some.

A request's blocks, for prompt and output, are taken here before its KV leaves the prefill instance, so that none is
ever sent to an instance that cannot hold it. Until then it stays in the prefill instance's pool: where that is full,
prefills wait, and the proxy refuses new requests once its bound is reached.
"""

import collections.abc as c
from dataclasses import dataclass

from engine.scheduling.kv_ledger import LedgerError


@dataclass(frozen=True, slots=True)
class Place:
    """The decode instance a request may go to."""

    request_id: str
    index: int


class DecodeRoom:
    """Blocks of each decode instance as the proxy gave them away; requests wait in the order they asked.

    capacity_blocks: of each instance.
    """

    def __init__(self, capacity_blocks: c.Sequence[int]) -> None:
        self._free = list(capacity_blocks)
        self._placed: dict[str, tuple[int, int]] = {}
        self._waiting: dict[str, int] = {}
        self._last = -1

    @property
    def free_blocks(self) -> tuple[int, ...]:
        """Of each instance."""
        return tuple(self._free)

    @property
    def waiting(self) -> int:
        """Requests that wait for room."""
        return len(self._waiting)

    def ask(self, request_id: str, blocks: int) -> None:
        """A request has its first token. Raises LedgerError when it asked before."""
        if request_id in self._waiting or request_id in self._placed:
            raise LedgerError(f"{request_id} asks twice for room")
        self._waiting[request_id] = blocks

    def place(self, available: c.Sequence[int]) -> list[Place]:
        """Who gets room now: instances by turns, among those available that have some; nobody overtakes."""
        places = []
        for request_id, blocks in list(self._waiting.items()):
            fitting = [index for index in available if self._free[index] >= blocks]
            if not fitting:
                break
            self._last = next((index for index in fitting if index > self._last), fitting[0])
            del self._waiting[request_id]
            self._free[self._last] -= blocks
            self._placed[request_id] = (self._last, blocks)
            places.append(Place(request_id, self._last))
        return places

    def leave(self, request_id: str) -> None:
        """The request is over, or asks anew: what it had is free. Nothing happens when it had nothing."""
        self._waiting.pop(request_id, None)
        if request_id in self._placed:
            index, blocks = self._placed.pop(request_id)
            self._free[index] += blocks
