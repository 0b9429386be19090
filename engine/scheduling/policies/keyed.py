"""A policy from one key function: what a student writes to try an idea."""

import collections.abc as c
from typing import Any

from engine.core.ports import Plan, View, WorkItem

Key = c.Callable[[WorkItem, int], Any]
"""(item, now_ns) -> anything comparable; the smallest runs first."""


class KeyPolicy:
    """Orders live work by `key(item, now_ns)`, smaller first; the executing item wins ties, then arrival."""

    def __init__(self, key: Key) -> None:
        self._key = key

    def plan(self, view: View, now_ns: int) -> Plan:
        """All live items, in order of their keys."""
        key = self._key
        return Plan(sorted(view.items, key=lambda item: (key(item, now_ns), item.tie)))
