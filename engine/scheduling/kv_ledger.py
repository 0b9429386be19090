"""Memory as integers: KV blocks of requests, activation bytes of tasks. Reserved before use, never over capacity."""

from engine.core.batch import Task
from engine.core.request import Request


class LedgerError(AssertionError):
    """A broken invariant of a ledger: a fault of the scheduler, never of a user."""


class KVLedger:
    """KV blocks. A request reserves blocks for its whole prompt and output once, before its first task,
    so that neither a later chunk nor a decode step can run out.
    """

    def __init__(self, capacity_blocks: int, block_tokens: int) -> None:
        self._capacity = capacity_blocks
        self._block_tokens = block_tokens
        self._held: dict[str, int] = {}
        self._free = capacity_blocks

    @property
    def capacity_blocks(self) -> int:
        """All blocks of the pool."""
        return self._capacity

    @property
    def free_blocks(self) -> int:
        """Blocks no request holds."""
        return self._free

    @property
    def holders(self) -> frozenset[str]:
        """Requests that hold blocks."""
        return frozenset(self._held)

    def blocks_for(self, request: Request) -> int:
        """Blocks the request needs in all."""
        return -(-request.total_tokens // self._block_tokens)

    def reserve(self, request_id: str, blocks: int) -> None:
        """Take a request's blocks. Raises LedgerError when they are not there, or the request holds some."""
        if request_id in self._held:
            raise LedgerError(f"{request_id} holds KV blocks already")
        if blocks > self._free:
            raise LedgerError(f"{request_id} needs {blocks} KV blocks, {self._free} are free")
        self._held[request_id] = blocks
        self._free -= blocks

    def release(self, request_id: str) -> None:
        """Give back what the request holds. Raises LedgerError when it holds nothing."""
        if request_id not in self._held:
            raise LedgerError(f"{request_id} gives back KV blocks it does not hold")
        self._free += self._held.pop(request_id)

    def check(self) -> None:
        """Raise LedgerError when the sums do not add up."""
        if self._free + sum(self._held.values()) != self._capacity or self._free < 0:
            raise LedgerError(f"KV blocks: {self._free} free + {sum(self._held.values())} held != {self._capacity}")


class ActivationLedger:
    """Bytes that tasks hold at their worst operator boundary, executing or preempted."""

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity = capacity_bytes
        self._held: dict[int, int] = {}
        self._free = capacity_bytes

    @property
    def capacity_bytes(self) -> int:
        """All bytes."""
        return self._capacity

    @property
    def free_bytes(self) -> int:
        """Bytes no task holds."""
        return self._free

    @property
    def holders(self) -> frozenset[int]:
        """Tasks that hold bytes."""
        return frozenset(self._held)

    def held_by(self, task_id: int) -> int:
        """Bytes the task holds."""
        return self._held[task_id]

    def reserve(self, task: Task, size_bytes: int) -> None:
        """Take the task's bytes. Raises LedgerError when they are not there."""
        if size_bytes > self._free or task.task_id in self._held:
            raise LedgerError(f"task {task.task_id} needs {size_bytes} activation bytes, {self._free} are free")
        self._held[task.task_id] = size_bytes
        self._free -= size_bytes

    def release(self, task_id: int) -> None:
        """Give back what the task holds. Raises LedgerError when it holds nothing."""
        if task_id not in self._held:
            raise LedgerError(f"task {task_id} gives back activation bytes it does not hold")
        self._free += self._held.pop(task_id)

    def check(self) -> None:
        """Raise LedgerError when the sums do not add up."""
        if self._free + sum(self._held.values()) != self._capacity or self._free < 0:
            raise LedgerError(f"activations: {self._free} free + {sum(self._held.values())} held != {self._capacity}")
