"""Which KV blocks are free: integers only, no tensors."""

from bisect import bisect_left
from itertools import pairwise


class KVExhaustedError(Exception):
    """Fewer KV blocks are free than a request needs."""


class BlockPool:
    """Hands out block numbers, as one contiguous run wherever there is one."""

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self._runs: list[tuple[int, int]] = [(0, blocks)] if blocks else []  # (first, length), sorted, never adjacent

    @property
    def free_blocks(self) -> int:
        """Blocks not handed out."""
        return sum(length for _, length in self._runs)

    def take(self, count: int) -> tuple[int, ...]:
        """Take blocks: the shortest run that holds all of them, else the longest runs. Raises KVExhaustedError."""
        if count > self.free_blocks:
            raise KVExhaustedError(f"{count} KV blocks are needed, {self.free_blocks} are free")
        taken: list[int] = []
        while len(taken) < count:
            missing = count - len(taken)
            enough = [run for run in self._runs if run[1] >= missing]
            first, length = min(enough, key=_length) if enough else max(self._runs, key=_length)
            used = min(length, missing)
            taken.extend(range(first, first + used))
            at = self._runs.index((first, length))
            self._runs[at : at + 1] = [(first + used, length - used)] if used < length else []
        return tuple(taken)

    def give_back(self, taken: tuple[int, ...]) -> None:
        """Free blocks that `take` handed out. Raises ValueError when one is free already."""
        for first, length in _runs_of(taken):
            self._insert(first, length)

    def _insert(self, first: int, length: int) -> None:
        at = bisect_left(self._runs, (first, 0))
        before = self._runs[at - 1] if at else (0, 0)
        after = self._runs[at] if at < len(self._runs) else (self.blocks + 1, 0)
        if before[0] + before[1] > first or first + length > min(after[0], self.blocks):
            raise ValueError(f"KV blocks {first} to {first + length - 1} are free already, or none of this pool")
        low, high = at, at
        if before[1] and before[0] + before[1] == first:
            low, first, length = at - 1, before[0], before[1] + length
        if first + length == after[0]:
            high, length = at + 1, length + after[1]
        self._runs[low:high] = [(first, length)]

    def check(self, taken: list[tuple[int, ...]]) -> None:
        """Raise AssertionError unless the free runs and `taken` are a partition of all blocks."""
        seen = [block for blocks in taken for block in blocks]
        for first, length in self._runs:
            seen.extend(range(first, first + length))
        if sorted(seen) != list(range(self.blocks)):
            raise AssertionError("KV blocks are lost or held twice")
        for (first, length), (following, _) in pairwise(self._runs):
            if first + length >= following:
                raise AssertionError("free KV runs overlap or should have been merged")


def _length(run: tuple[int, int]) -> int:
    return run[1]


def _runs_of(blocks: tuple[int, ...]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for block in blocks:
        if runs and runs[-1][0] + runs[-1][1] == block:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((block, 1))
    return runs
