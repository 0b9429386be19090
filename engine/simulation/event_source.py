"""When the scheduler sees what happened: at once, at the ticks of a poll, or before the next operator."""

from engine.core.clock import seconds_to_ns
from engine.core.events import Event, Woken, event_order
from engine.simulation.clients import Clients
from engine.simulation.event_heap import EventHeap
from engine.simulation.executor import SimulatedExecutor
from engine.simulation.settings import SimulationSettings
from engine.simulation.virtual_clock import VirtualClock


class SimulatedEvents:
    """The events of a simulated run (`engine.core.ports.EventSource`). `wait` moves the clock.

    drain_ns: the source closes this long after the last due instant; None = once nothing more will happen.
    """

    def __init__(
        self,
        clients: Clients,
        executor: SimulatedExecutor,
        settings: SimulationSettings,
        clock: VirtualClock,
        heap: EventHeap,
        drain_ns: int | None,
    ) -> None:
        self._clients = clients
        self._executor = executor
        self._rounds = settings.rounds
        self._poll_ns = seconds_to_ns(settings.poll_s)
        self._busy_ns = seconds_to_ns(settings.round_s) if settings.serial_rounds else 0
        self._free_at_ns = 0
        self._clock = clock
        self._heap = heap
        self._drain_ns = drain_ns
        self.cut = False
        """Whether the drain ended before everything was over."""

    def wait(self) -> list[Event]:
        """All that is due at the next instant at which something is seen. Empty = closed."""
        due_ns = self._next_due_ns()
        if due_ns is None:
            return []
        seen_at_ns = self._seen_at_ns(max(due_ns, self._free_at_ns))
        if self._drain_ns is not None and self._clients.next_arrival_ns is None:
            end_ns = max(self._clock.now_ns(), self._clients.last_due_ns + self._drain_ns)
            if seen_at_ns > end_ns:
                self._clock.advance_to(end_ns)
                self.cut = True
                return []
        self._clock.advance_to(seen_at_ns)
        self._free_at_ns = seen_at_ns + self._busy_ns
        events = self._heap.take_until(seen_at_ns)
        arrivals = self._clients.send_until(seen_at_ns)
        if arrivals:
            events += arrivals
            events += self._heap.take_until(seen_at_ns)  # some may have given up since, before they were seen
            events.sort(key=event_order)
        return events

    def wake_at(self, at_ns: int) -> None:
        """Something becomes urgent then."""
        self._heap.put(Woken(at_ns, self._heap.number()))

    def _next_due_ns(self) -> int | None:
        pending_ns, sending_ns = self._heap.next_at_ns, self._clients.next_arrival_ns
        if pending_ns is None or sending_ns is None:
            return sending_ns if pending_ns is None else pending_ns
        return min(pending_ns, sending_ns)

    def _seen_at_ns(self, at_ns: int) -> int:
        match self._rounds:
            case "poll":
                return -(-at_ns // self._poll_ns) * self._poll_ns
            case "operator":
                return self._executor.next_operator_at_ns(at_ns)
            case _:
                return at_ns
