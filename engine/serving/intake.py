"""The engine's end of the channel: messages in become events, outputs become messages."""

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from engine.core.clock import Clock
from engine.core.events import Arrival, Cancelled, Event, Output, SendAsked
from engine.core.request import HandOver, Request
from engine.core.slo import SLO
from engine.serving.channel import BlockingChannel, Frame, unpack_token_ids
from engine.serving.engine_state import Snapshot
from engine.torch_backend.event_queue import EventQueue
from engine.torch_backend.payload import Payload
from engine.torch_backend.sampling import SamplingSettings

LOG = logging.getLogger(__name__)


class Tokens(Protocol):
    """Where the tokens of live requests are kept (the executor)."""

    def register(self, request_id: str, payload: Payload) -> None:
        """Before the request's arrival."""
        ...

    def forget(self, request_id: str) -> None:
        """Once it is over."""
        ...

    def send_to(self, request_id: str, destination: str) -> None:
        """Before the request's KV leaves."""
        ...


class Intake:
    """Serves the channel on the reader thread until it closes or a stop is asked.

    snapshot: called on the reader thread; True resets the counters.
    """

    def __init__(
        self,
        channel: BlockingChannel,
        events: EventQueue,
        tokens: Tokens,
        clock: Clock,
        snapshot: Callable[[bool], Snapshot],
    ) -> None:
        self._channel = channel
        self._events = events
        self._tokens = tokens
        self._clock = clock
        self._snapshot = snapshot
        self._arrivals = 0

    def serve(self, frame: Frame | None) -> None:
        """Take this message and those that follow, until the other side leaves or says stop."""
        while frame is not None:
            header, raw = frame
            match header["kind"]:
                case "generate":
                    self._arrive(header, raw)
                case "cancel":
                    self._events.put(Cancelled(self._clock.now_ns(), 0, header["request_id"]))
                case "send":
                    self._tokens.send_to(header["request_id"], header["to"])
                    self._events.put(SendAsked(self._clock.now_ns(), 0, header["request_id"]))
                case "ask":
                    self._answer(header)
                case "stop":
                    return
            frame = self._channel.receive()

    def _arrive(self, header: dict[str, Any], raw: bytes) -> None:
        request_id = header["request_id"]
        token_ids = unpack_token_ids(raw)
        sampling = SamplingSettings(
            max_tokens=header["max_tokens"],
            temperature=header["temperature"],
            seed=header["seed"],
            ignore_eos=header["ignore_eos"],
        )
        request = Request(
            request_id=request_id,
            seq=self._arrivals,
            arrived_at_ns=header["arrived_at_ns"],
            prompt_tokens=len(token_ids),
            max_tokens=header["max_tokens"],
            slo=SLO(header["ttft_slo_ns"], header["tbt_slo_ns"]),
            task=header["task"],
            hand_over=HandOver(header.get("hand_over", HandOver.NONE)),
        )
        self._arrivals += 1
        try:
            self._tokens.register(request_id, _payload(token_ids, sampling, header))
        except (RuntimeError, MemoryError) as error:
            # The device has no room for its random numbers: this request's failure, not the engine's.
            LOG.exception("request %s cannot be taken in", request_id)
            self._channel.send(
                {"kind": "failed", "request_id": request_id, "reason": f"{type(error).__name__}: {error}"}
            )
            return
        self._events.put(Arrival(request.arrived_at_ns, 0, request))

    def _answer(self, header: dict[str, Any]) -> None:
        snapshot = self._snapshot(header["reset"])
        self._channel.send({"kind": "snapshot", "ticket": header["ticket"], "snapshot": snapshot.to_json()})


def _payload(token_ids: tuple[int, ...], sampling: SamplingSettings, header: dict[str, Any]) -> Payload:
    if "hand_over" not in header:
        return Payload(token_ids, sampling)
    return Payload(token_ids, sampling, HandOver(header["hand_over"]), header["first_token"], header["ticket"])


class ForgettingEvents:
    """An event source that drops the tokens of cancelled requests once the scheduler has heard of it.

    Not before: a Start that is under way may still name the request.
    """

    def __init__(self, events: EventQueue, tokens: Tokens) -> None:
        self._events = events
        self._tokens = tokens
        self._cancelled: list[str] = []

    def wait(self) -> list[Event]:
        """As the queue's. That it is called says that the events before have been handled."""
        for request_id in self._cancelled:
            self._tokens.forget(request_id)
        taken = self._events.wait()
        self._cancelled = [event.request_id for event in taken if isinstance(event, Cancelled)]
        return taken

    def wake_at(self, at_ns: int) -> None:
        """As the queue's."""
        self._events.wake_at(at_ns)


class ChannelSink:
    """Sends what requests get to the HTTP process, and forgets those that are over."""

    def __init__(self, channel: BlockingChannel, tokens: Tokens) -> None:
        self._channel = channel
        self._tokens = tokens
        self._gone = threading.Event()

    def deliver(self, outputs: Sequence[Output]) -> None:
        """Tokens of one completed task; a chunk that gave no token says nothing."""
        given = [[o.request_id, o.token_id, o.finish_reason] for o in outputs if o.token_id is not None]
        if given:
            self._send({"kind": "outputs", "outputs": given})
        for output in outputs:
            if output.finish_reason is not None:
                self._tokens.forget(output.request_id)

    def rejected(self, request_id: str, reason: str, never: bool) -> None:
        """The scheduler refuses the request; never: it would on the idlest engine, too."""
        self._send({"kind": "rejected", "request_id": request_id, "reason": reason, "never": never})
        self._tokens.forget(request_id)

    def failed(self, request_id: str, reason: str) -> None:
        """The request's task broke."""
        self._send({"kind": "failed", "request_id": request_id, "reason": reason})
        self._tokens.forget(request_id)

    def _send(self, header: dict[str, Any]) -> None:
        try:
            self._channel.send(header)
        except OSError:
            # The HTTP process is gone; the reader thread sees it too and ends the engine.
            if not self._gone.is_set():
                self._gone.set()
                LOG.info("the HTTP process is gone")
