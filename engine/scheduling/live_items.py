"""The work items of this instant: by key, and in the order they are due."""

import bisect
import collections.abc as c
from operator import attrgetter

from engine.core.ports import WorkItem

_DUE_THEN_TIE = attrgetter("due_at_ns", "tie")


class LiveItems:
    """Kept in order while things change, so that an order by deadline costs one pass and not a sort."""

    def __init__(self) -> None:
        self._by_key: dict[int, WorkItem] = {}
        self._in_order: list[WorkItem] = []

    @property
    def in_due_order(self) -> c.Collection[WorkItem]:
        """All items by due instant, ties by `tie`."""
        return self._in_order

    def __len__(self) -> int:
        return len(self._in_order)

    def get(self, key: int) -> WorkItem | None:
        """The item of this key."""
        return self._by_key.get(key)

    def put(self, item: WorkItem) -> None:
        """Show an item, in place of the one with its key, if any. O(log n) comparisons."""
        self.drop(item.key)
        self._by_key[item.key] = item
        bisect.insort(self._in_order, item, key=_DUE_THEN_TIE)

    def drop(self, key: int) -> None:
        """Show it no more; nothing when it is not there."""
        item = self._by_key.pop(key, None)
        if item is not None:
            del self._in_order[self._place(item)]

    def check(self) -> None:
        """Raise AssertionError when the two sides disagree."""
        if sorted(self._by_key.values(), key=_DUE_THEN_TIE) != self._in_order:
            raise AssertionError("the items by key and those in order differ")

    def _place(self, item: WorkItem) -> int:
        return bisect.bisect_left(self._in_order, _DUE_THEN_TIE(item), key=_DUE_THEN_TIE)
