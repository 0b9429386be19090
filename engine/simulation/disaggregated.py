"""A simulated run of prefill instances and decode instances behind a proxy: each with a scheduler of its own."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter

from engine.core.clock import NS_PER_S, seconds_to_ns
from engine.core.events import Arrival, Cancelled, Event, Output, SendAsked, Woken
from engine.core.record import RequestRecord
from engine.core.request import HandOver, Request
from engine.scheduling.driver import Driver
from engine.scheduling.report_sum import sum_of_reports
from engine.scheduling.routing.decode_room import DecodeRoom
from engine.scheduling.routing.prefill_queues import PrefillQueues
from engine.scheduling.routing.router import Prompt, Router
from engine.scheduling.scheduler import Scheduler
from engine.simulation.clients import Clients, SimulatedRequest
from engine.simulation.device import DeviceModel
from engine.simulation.event_heap import EventHeap
from engine.simulation.executor import RequestLengths, SimulatedExecutor
from engine.simulation.run import SimulationResult
from engine.simulation.settings import SimulationSettings
from engine.simulation.simulated_transport import SimulatedTransport
from engine.simulation.virtual_clock import VirtualClock


def simulate_disaggregated(
    requests: Iterable[SimulatedRequest],
    prefill: Sequence[Scheduler],
    decode: Sequence[Scheduler],
    device: DeviceModel,
    settings: SimulationSettings,
    transport: SimulatedTransport,
    router: Router,
    prefill_ns: Callable[[int], int],
    block_tokens: int,
    *,
    give_up_slo_multiple: float | None = None,
    drain_ns: int | None = None,
) -> SimulationResult:
    """As `engine.simulation.run.simulate`, over several instances of one device model; reports are added.

    block_tokens: tokens of a KV block. prefill_ns: what the router thinks a prompt of so many tokens takes.
    Raises ValueError for rounds other than at events.
    """
    if settings.rounds != "event" or settings.serial_rounds:
        raise ValueError("several instances are simulated with rounds = event only, and not serial")
    clock, mailbox = VirtualClock(), EventHeap()
    kept: list[tuple[int, RequestRecord]] = []
    proxy = _Proxy(prefill, decode, device, settings, transport, router, prefill_ns, block_tokens, clock)
    clients = Clients(
        requests,
        proxy,
        clock,
        mailbox,
        arrival_delay_ns=seconds_to_ns(settings.arrival_delay_s),
        reply_delay_ns=seconds_to_ns(settings.round_s),
        give_up_slo_multiple=give_up_slo_multiple,
        on_end=lambda place, record: kept.append((place, record)),
    )
    proxy.clients = clients
    reason = "the engines fell idle before the request was over"
    while (at_ns := _next_ns(proxy, clients, mailbox)) is not None:
        end_ns = None if drain_ns is None or clients.next_arrival_ns is not None else clients.last_due_ns + drain_ns
        if end_ns is not None and at_ns > end_ns:
            clock.advance_to(max(clock.now_ns(), end_ns))
            reason = f"not over {(drain_ns or 0) / NS_PER_S:g} s after the last due instant"
            break
        clock.advance_to(at_ns)
        left = mailbox.take_until(at_ns)
        clients.leave(left)
        for arrival in clients.send_until(at_ns):
            proxy.arrive(arrival.request)
        for event in left:
            if isinstance(event, Cancelled):
                proxy.leave(event.request_id)
        proxy.step()
    clients.cut(reason)
    kept.sort(key=itemgetter(0))
    report = sum_of_reports([scheduler.report() for scheduler in (*prefill, *decode)])
    rounds_ns = seconds_to_ns((report.decisions + report.other_decisions) * settings.round_s)
    report = dataclasses.replace(report, scheduling_ns=rounds_ns)
    return SimulationResult(tuple(record for _, record in kept), report, clock.now_ns(), proxy.events)


def _next_ns(proxy: "_Proxy", clients: Clients, mailbox: EventHeap) -> int | None:
    instants = [clients.next_arrival_ns, mailbox.next_at_ns, *(one.heap.next_at_ns for one in proxy.instances)]
    return min((at_ns for at_ns in instants if at_ns is not None), default=None)


class _Instance:
    """A scheduler, its executor and what will happen to them. `deliver` and the others: the driver's sink."""

    def __init__(
        self,
        scheduler: Scheduler,
        device: DeviceModel,
        settings: SimulationSettings,
        clock: VirtualClock,
        transport: SimulatedTransport,
        deliver: Callable[["_Instance", Sequence[Output]], None],
        refuse: Callable[[str, str, bool], None],
    ) -> None:
        self.heap = EventHeap()
        self.executor = SimulatedExecutor(device, settings, clock, self.heap, transport)
        self._driver = Driver(scheduler, self.executor, self, clock, self)
        self._deliver, self._refuse = deliver, refuse

    def step(self, at_ns: int) -> int:
        """Handle what is due; returns how much it was."""
        events = self.heap.take_until(at_ns)
        if events:
            self._driver.step(events)
        return len(events)

    def put(self, event: Event) -> int:
        """Something that will happen here; returns the number by which it can be withdrawn."""
        numbered = dataclasses.replace(event, event_seq=self.heap.number())
        self.heap.put(numbered)
        return numbered.event_seq

    def deliver(self, outputs: Sequence[Output]) -> None:
        self._deliver(self, outputs)

    def rejected(self, request_id: str, reason: str, never: bool) -> None:
        del never
        self._refuse(request_id, reason, True)

    def failed(self, request_id: str, reason: str) -> None:
        self._refuse(request_id, reason, False)

    def wait(self) -> list[Event]:
        """Nobody waits here: the run's loop has the clock."""
        return []

    def wake_at(self, at_ns: int) -> None:
        self.put(Woken(at_ns, 0))


@dataclasses.dataclass(slots=True, eq=False)
class _Journey:
    """Where a request is. arrival_seq: number of its arrival at the decode instance, at `there_at_ns`."""

    request: Request
    prefill: _Instance
    decode: _Instance | None = None
    arrival_seq: int = -1
    there_at_ns: int = 0


class _Proxy:
    """Routes requests and hands them over, in virtual time. To clients it is the executor they register with."""

    clients: Clients

    def __init__(
        self,
        prefill: Sequence[Scheduler],
        decode: Sequence[Scheduler],
        device: DeviceModel,
        settings: SimulationSettings,
        transport: SimulatedTransport,
        router: Router,
        prefill_ns: Callable[[int], int],
        block_tokens: int,
        clock: VirtualClock,
    ) -> None:
        def instance(scheduler: Scheduler, deliver: Callable[[_Instance, Sequence[Output]], None]) -> _Instance:
            return _Instance(scheduler, device, settings, clock, transport, deliver, self._refused)

        self._clock = clock
        self._transport = transport
        self._prefill_ns = prefill_ns
        self._prefill = [instance(scheduler, self._from_prefill) for scheduler in prefill]
        self._decode = [instance(scheduler, self._from_decode) for scheduler in decode]
        self.instances = (*self._prefill, *self._decode)
        self._queues = PrefillQueues(router)
        self._room = DecodeRoom([scheduler.kv_free_blocks for scheduler in decode])
        self._block_tokens = block_tokens
        self._round_ns = seconds_to_ns(settings.round_s)
        self._journeys: dict[str, _Journey] = {}
        self._lengths: dict[str, RequestLengths] = {}
        self.events = 0

    def register(self, request_id: str, lengths: RequestLengths) -> None:
        self._lengths[request_id] = lengths

    def forget(self, request_id: str) -> None:
        """The request is over for its client."""
        self._lengths.pop(request_id, None)
        for instance in self.instances:
            instance.executor.forget(request_id)
        self._queues.leave(request_id)
        self._room.leave(request_id)
        self._place()

    def arrive(self, request: Request) -> None:
        prompt = Prompt(request.due_at_ns, self._prefill_ns(request.prompt_tokens))
        available = range(len(self._prefill))
        instance = self._prefill[self._queues.route(request.request_id, prompt, available, self._clock.now_ns())]
        self._journeys[request.request_id] = _Journey(request, instance)
        hand_over = HandOver.SENDS if request.max_tokens > 1 else HandOver.NONE
        instance.executor.register(request.request_id, self._lengths[request.request_id])
        instance.put(Arrival(request.arrived_at_ns, 0, dataclasses.replace(request, hand_over=hand_over)))

    def leave(self, request_id: str) -> None:
        """Its client left."""
        journey = self._journeys.pop(request_id, None)
        if journey is None:
            return
        cancelled = Cancelled(self._clock.now_ns(), 0, request_id)
        journey.prefill.put(cancelled)
        if journey.decode is not None and journey.there_at_ns >= cancelled.at_ns:
            journey.decode.heap.withdraw(journey.arrival_seq)
        elif journey.decode is not None:
            journey.decode.put(cancelled)

    def step(self) -> None:
        """All instances, until nothing more is due at this instant."""
        now_ns = self._clock.now_ns()
        while handled := sum(instance.step(now_ns) for instance in self.instances):
            self.events += handled

    def _from_prefill(self, instance: _Instance, outputs: Sequence[Output]) -> None:
        del instance
        self.clients.deliver(outputs)
        for output in outputs:
            journey = self._journeys.get(output.request_id)
            if journey is None or output.token_id is None:
                continue
            self._queues.leave(output.request_id)
            if output.finish_reason is not None:
                del self._journeys[output.request_id]
            else:
                tokens = journey.request.prompt_tokens + journey.request.max_tokens
                self._room.ask(output.request_id, -(-tokens // self._block_tokens))
        self._place()

    def _from_decode(self, instance: _Instance, outputs: Sequence[Output]) -> None:
        del instance
        self.clients.deliver(outputs)
        for output in outputs:
            if output.finish_reason is not None:
                self._journeys.pop(output.request_id, None)

    def _place(self) -> None:
        """The KV of those that got room leaves; the decode instance has it when the hand-over ends."""
        now_ns = self._clock.now_ns()
        for place in self._room.place(range(len(self._decode))):
            journey = self._journeys[place.request_id]
            journey.decode = self._decode[place.index]
            journey.prefill.put(SendAsked(now_ns, 0, place.request_id))
            hand_over_ns = self._transport.hand_over_ns(journey.request.prompt_tokens)
            journey.there_at_ns = now_ns + self._round_ns + hand_over_ns
            journey.decode.executor.register(place.request_id, self._lengths[place.request_id])
            moved = dataclasses.replace(journey.request, hand_over=HandOver.RECEIVES)
            journey.arrival_seq = journey.decode.put(Arrival(journey.there_at_ns, 0, moved))

    def _refused(self, request_id: str, reason: str, rejected: bool) -> None:
        self._journeys.pop(request_id, None)
        if rejected:
            self.clients.rejected(request_id, reason, False)
        else:
            self.clients.failed(request_id, reason)
