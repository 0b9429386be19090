"""The clients of a simulated run: they send in an open loop, give up, and note what they saw."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from engine.core.events import Arrival, Cancelled, Event, Output
from engine.core.record import RequestRecord, Status
from engine.core.request import Request
from engine.core.slo import SLO
from engine.simulation.event_heap import EventHeap
from engine.simulation.executor import RequestLengths
from engine.simulation.virtual_clock import VirtualClock


@dataclass(frozen=True, slots=True)
class SimulatedRequest:
    """One request to send: lengths only, no tokens. due_ns: after the start of the run."""

    request_id: str
    due_ns: int
    prompt_tokens: int
    max_tokens: int
    slo: SLO
    task: str = ""


@dataclass(slots=True, eq=False)
class _Exchange:
    """A request under way. place: in the order of sending. give_up_seq: the event by which its client would leave."""

    place: int
    request: SimulatedRequest
    give_up_seq: int | None
    first_token_at_ns: int | None = None
    last_token_at_ns: int | None = None
    output_tokens: int = 0
    tbt_max_ns: int | None = None


class Registry(Protocol):
    """Where requests are made known: the executor, or a proxy over several."""

    def register(self, request_id: str, lengths: RequestLengths) -> None:
        """Before its arrival is handled."""
        ...

    def forget(self, request_id: str) -> None:
        """Once it is over."""
        ...


class Clients:
    """An open-loop load generator in virtual time, and the sink of what requests get.

    requests: in order of `due_ns`; taken one by one, as they become due.
    arrival_delay_ns: from the instant a request is due until the engine has it.
    reply_delay_ns: from the instant of a driver's call until clients hear of it.
    on_end: gets each record as its request ends, and the request's place in the order of sending.
    """

    def __init__(
        self,
        requests: Iterable[SimulatedRequest],
        executor: Registry,
        clock: VirtualClock,
        heap: EventHeap,
        *,
        arrival_delay_ns: int = 0,
        reply_delay_ns: int,
        give_up_slo_multiple: float | None,
        on_end: Callable[[int, RequestRecord], None],
    ) -> None:
        if give_up_slo_multiple is not None and not give_up_slo_multiple > 0:
            raise ValueError(f"give_up_slo_multiple must be above 0, got {give_up_slo_multiple}")
        self._requests = iter(requests)
        self._executor = executor
        self._clock = clock
        self._heap = heap
        self._arrival_delay_ns = arrival_delay_ns
        self._reply_delay_ns = reply_delay_ns
        self._give_up_slo_multiple = give_up_slo_multiple
        self._on_end = on_end
        self._live: dict[str, _Exchange] = {}
        self._sent = 0
        self.last_due_ns = 0
        self._next = self._take()

    @property
    def next_arrival_ns(self) -> int | None:
        """When the engine gets the next request; None when it has all."""
        return None if self._next is None else self._next.due_ns + self._arrival_delay_ns

    def send_until(self, at_ns: int) -> list[Arrival]:
        """Send what reaches the engine up to this instant."""
        arrivals = []
        while self._next is not None and self._next.due_ns + self._arrival_delay_ns <= at_ns:
            arrivals.append(self._send(self._next))
            self._next = self._take()
        return arrivals

    def leave(self, events: Sequence[Event]) -> None:
        """The clients of cancelled requests have left: whatever comes later they do not see."""
        for event in events:
            if isinstance(event, Cancelled):
                self._end(event.request_id, Status.GAVE_UP, self._gave_up_reason)

    def cut(self, reason: str) -> None:
        """The run ends before these requests do; what was not due yet is not sent."""
        for request_id in list(self._live):
            self._end(request_id, Status.UNFINISHED, reason)

    # What the driver tells (`engine.scheduling.driver.OutputSink`).

    def deliver(self, outputs: Sequence[Output]) -> None:
        """Tokens reach their clients."""
        at_ns = self._clock.now_ns() + self._reply_delay_ns
        for output in outputs:
            exchange = self._live.get(output.request_id)
            if exchange is None or output.token_id is None:
                continue
            exchange.output_tokens += 1
            if exchange.first_token_at_ns is None:
                exchange.first_token_at_ns = at_ns
                self._stay(exchange)
            elif exchange.last_token_at_ns is not None:
                gap_ns = at_ns - exchange.last_token_at_ns
                exchange.tbt_max_ns = max(gap_ns, exchange.tbt_max_ns or 0)
            exchange.last_token_at_ns = at_ns
            if output.finish_reason is not None:
                self._end(output.request_id, Status.OK, "")

    def rejected(self, request_id: str, reason: str, never: bool) -> None:  # noqa: ARG002 - either way a refusal
        """The request was refused."""
        self._end(request_id, Status.REJECTED, reason)

    def failed(self, request_id: str, reason: str) -> None:
        """The request's task broke."""
        self._end(request_id, Status.FAILED, reason)

    # Inside.

    @property
    def _gave_up_reason(self) -> str:
        return f"no token {self._give_up_slo_multiple:g} x TTFT SLO after it was due"

    def _take(self) -> SimulatedRequest | None:
        request = next(self._requests, None)
        if request is not None:
            if request.due_ns < self.last_due_ns:
                raise ValueError(f"request {request.request_id}: due before the request that comes before it")
            self.last_due_ns = request.due_ns
        return request

    def _send(self, request: SimulatedRequest) -> Arrival:
        request_id, arrives_ns = request.request_id, request.due_ns + self._arrival_delay_ns
        if request_id in self._live:
            raise ValueError(f"request id {request_id!r} is used by two requests at a time")
        seq = self._sent
        self._sent += 1
        self._live[request_id] = _Exchange(seq, request, self._plan_to_give_up(request))
        self._executor.register(request_id, RequestLengths(request.prompt_tokens, request.max_tokens))
        sent = Request(
            request_id, seq, arrives_ns, request.prompt_tokens, request.max_tokens, request.slo, request.task
        )
        return Arrival(arrives_ns, self._heap.number(), sent)

    def _plan_to_give_up(self, request: SimulatedRequest) -> int | None:
        slo_ns = request.slo.ttft_ns
        if self._give_up_slo_multiple is None or slo_ns is None:
            return None
        seq = self._heap.number()
        waits_ns = round(self._give_up_slo_multiple * slo_ns)
        # The engine cannot hear of it before it has the request.
        at_ns = request.due_ns + max(waits_ns, self._arrival_delay_ns + 1)
        self._heap.put(Cancelled(at_ns, seq, request.request_id))
        return seq

    def _stay(self, exchange: _Exchange) -> None:
        if exchange.give_up_seq is not None:
            self._heap.withdraw(exchange.give_up_seq)
            exchange.give_up_seq = None

    def _end(self, request_id: str, status: Status, reason: str) -> None:
        exchange = self._live.pop(request_id, None)
        if exchange is None:
            return
        if status is not Status.GAVE_UP:
            self._stay(exchange)
        self._executor.forget(request_id)
        self._on_end(exchange.place, _record(exchange, status, reason))


def _record(exchange: _Exchange, status: Status, reason: str) -> RequestRecord:
    request = exchange.request
    return RequestRecord(
        request_id=request.request_id,
        task=request.task,
        prompt_tokens=request.prompt_tokens,
        max_tokens=request.max_tokens,
        ttft_slo_ns=request.slo.ttft_ns,
        tbt_slo_ns=request.slo.tbt_ns,
        due_at_ns=request.due_ns,
        sent_at_ns=request.due_ns,
        first_token_at_ns=exchange.first_token_at_ns,
        last_token_at_ns=exchange.last_token_at_ns,
        output_tokens=exchange.output_tokens,
        tbt_max_ns=exchange.tbt_max_ns,
        server_prompt_tokens=request.prompt_tokens,
        cached_tokens=0,
        status=status,
        reason=reason,
    )
