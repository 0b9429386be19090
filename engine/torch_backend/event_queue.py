"""The event monitor's queue: threads put what happened, the driver takes all of it at once."""

import threading
from dataclasses import replace

from engine.core.events import Arrival, Cancelled, Event, event_order


class EventQueue:
    """Thread-safe source of events. Numbers them in the order of `put`."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._pending: list[Event] = []
        self._next_seq = 0
        self._closed = False

    def put(self, event: Event) -> None:
        """Add an event; its `event_seq` is replaced by this queue's next number. Ignored once closed."""
        with self._changed:
            if self._closed:
                return
            if isinstance(event, Cancelled):
                event = self._after_its_arrival(event)
            self._pending.append(replace(event, event_seq=self._next_seq))
            self._next_seq += 1
            self._changed.notify()

    def _after_its_arrival(self, event: Cancelled) -> Cancelled:
        """No request ends before it came, whatever a clock says that was set back."""
        for other in self._pending:
            if isinstance(other, Arrival) and other.request.request_id == event.request_id:
                return replace(event, at_ns=max(event.at_ns, other.at_ns + 1))
        return event

    def wait(self) -> list[Event]:
        """Block until something happened; all that is pending, in `event_order`. Empty = closed and drained."""
        with self._changed:
            self._changed.wait_for(lambda: self._pending or self._closed)
            taken, self._pending = self._pending, []
        taken.sort(key=event_order)
        return taken

    def close(self) -> None:
        """Let `wait` return what is pending, then empty lists for ever."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
