"""The event monitor's queue: threads put what happened, the driver takes all of it at once."""

import heapq
import threading
from dataclasses import replace

from engine.core.clock import ns_to_seconds
from engine.core.events import Arrival, Cancelled, Event, Woken, event_order
from engine.torch_backend.clock import MonotonicClock


class EventQueue:
    """Thread-safe source of events. Numbers them in the order of `put`."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._pending: list[Event] = []
        self._next_seq = 0
        self._closed = False
        self._clock = MonotonicClock()
        self._alarms: list[int] = []

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

    def wake_at(self, at_ns: int) -> None:
        """Let `wait` return Woken at this instant of the monotonic clock, or soon after."""
        with self._changed:
            heapq.heappush(self._alarms, at_ns)
            self._changed.notify()

    def wait(self) -> list[Event]:
        """Block until something happened; all that is pending, in `event_order`. Empty = closed and drained."""
        with self._changed:
            while not self._pending and not self._closed:
                self._changed.wait(self._until_alarm_s())
            taken, self._pending = self._pending, []
        taken.sort(key=event_order)
        return taken

    def _until_alarm_s(self) -> float | None:
        """Seconds to the next alarm; 0 once it has become an event, None without one."""
        if not self._alarms:
            return None
        now_ns = self._clock.now_ns()
        if self._alarms[0] > now_ns:
            return ns_to_seconds(self._alarms[0] - now_ns)
        self._pending.append(Woken(heapq.heappop(self._alarms), self._next_seq))
        self._next_seq += 1
        return 0.0

    def close(self) -> None:
        """Let `wait` return what is pending, then empty lists for ever."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
