"""Events of the future, by instant."""

import heapq

from engine.core.events import Event, event_order

SWEPT_FROM = 64
"""Withdrawn events are swept out once they are this many, and half of all."""


class EventHeap:
    """What will happen, unless it is withdrawn before. Grows with what is pending only."""

    def __init__(self) -> None:
        self._entries: list[tuple[tuple[int, int, int], Event]] = []
        self._withdrawn: set[int] = set()
        self._next_seq = 0

    def __len__(self) -> int:
        return len(self._entries) - len(self._withdrawn)

    def number(self) -> int:
        """The `event_seq` of the next event to be made."""
        seq = self._next_seq
        self._next_seq += 1
        return seq

    def put(self, event: Event) -> None:
        """This will happen at `event.at_ns`. Its `event_seq` comes from `number`."""
        heapq.heappush(self._entries, (event_order(event), event))

    def withdraw(self, event_seq: int) -> None:
        """A pending event will not happen after all."""
        self._withdrawn.add(event_seq)
        if len(self._withdrawn) >= SWEPT_FROM and 2 * len(self._withdrawn) > len(self._entries):
            self._entries = [entry for entry in self._entries if entry[1].event_seq not in self._withdrawn]
            self._withdrawn.clear()
            heapq.heapify(self._entries)

    @property
    def next_at_ns(self) -> int | None:
        """Instant of the first pending event; None when there is none."""
        entries = self._entries
        while entries and entries[0][1].event_seq in self._withdrawn:
            self._withdrawn.discard(heapq.heappop(entries)[1].event_seq)
        return entries[0][0][0] if entries else None

    def take_until(self, at_ns: int) -> list[Event]:
        """All events up to this instant, in `event_order`; they are pending no more."""
        taken: list[Event] = []
        entries, withdrawn = self._entries, self._withdrawn
        while entries and entries[0][0][0] <= at_ns:
            event = heapq.heappop(entries)[1]
            if event.event_seq in withdrawn:
                withdrawn.discard(event.event_seq)
            else:
                taken.append(event)
        return taken
