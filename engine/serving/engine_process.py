"""The engine process as the HTTP process sees it: start, generate, cancel, ask, stop, and its death."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any

from engine.core.request import HandOver
from engine.serving.api_error import ApiError
from engine.serving.beat_monitor import BeatMonitor
from engine.serving.channel import Frame, encode, pack_token_ids, read_frame
from engine.serving.engine_start import INSTANCE_COMMAND, start_process
from engine.serving.engine_state import EngineDescription, FrontState, Snapshot
from engine.serving.generation import Generation
from engine.serving.open_request import OpenRequest, Sent, Token
from engine.serving.settings import EngineSettings, SettingsError, to_json

EXIT_WAIT_S = 5.0
ANSWER_WAIT_S = 10.0
LONGEST_REASON = 500


class EngineError(Exception):
    """The engine process is gone or broken; the message is a sentence."""


class Phase(StrEnum):
    """Where the engine process stands."""

    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"
    STOPPED = "stopped"


class EngineProcess:
    """One engine process and the requests it has. Made by `launch`."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        beats: BeatMonitor,
        on_unclaimed: Callable[[str], None],
        on_recovered: Callable[[], None],
    ) -> None:
        self._process = process
        self._on_recovered = on_recovered
        self._on_unclaimed = on_unclaimed
        self._beats = beats
        self._reader = reader
        self._writer = writer
        self._open: dict[str, OpenRequest] = {}
        self._asked: dict[int, asyncio.Future[Snapshot]] = {}
        self._tickets = 0
        self._ready: asyncio.Future[EngineDescription] = asyncio.get_running_loop().create_future()
        self.phase = Phase.STARTING
        self.failure = ""
        self.ended = asyncio.Event()
        self._receiving = asyncio.create_task(self._receive())

    @staticmethod
    async def launch(
        settings: EngineSettings,
        command: Sequence[str] = INSTANCE_COMMAND,
        on_unclaimed: Callable[[str], None] = lambda _: None,
        on_recovered: Callable[[], None] = lambda: None,
        cpus: frozenset[int] = frozenset(),
    ) -> "EngineProcess":
        """Start the process. command: what to run; `--channel-fd N` is added.

        on_unclaimed: told the ticket of KV whose request was closed before it had left.
        on_recovered: told when what hung goes on.
        cpus: it may run on; none: those of this process.
        """
        process, reader, writer = await start_process(command, settings.threads)
        beats = BeatMonitor(settings.watchdog_s, asyncio.get_running_loop().time)
        engine = EngineProcess(process, reader, writer, beats, on_unclaimed, on_recovered)
        engine._send({"kind": "start", "settings": to_json(settings), "cpus": sorted(cpus)})
        return engine

    @property
    def pid(self) -> int:
        """Process id of the engine."""
        return self._process.pid

    @property
    def open_requests(self) -> int:
        """Requests the engine has not finished."""
        return len(self._open)

    @property
    def silent(self) -> bool:
        """Whether the whole process hangs: it answers nothing."""
        return self.phase is Phase.READY and self._beats.silent

    @property
    def stall(self) -> str:
        """A sentence when an operator, or the whole process, hangs; else ""."""
        return self._beats.stall if self.phase is Phase.READY else ""

    def front_state(self) -> FrontState:
        """What is known on this side."""
        return FrontState(len(self._open), bool(self.stall), self._beats.stalls)

    async def ready(self) -> EngineDescription:
        """Wait until it can serve. Raises SettingsError for a user's mistake, EngineError when it died."""
        return await asyncio.shield(self._ready)

    def open(self, generation: Generation) -> OpenRequest:
        """Hand a request to the engine. Raises ApiError while it cannot take any."""
        if self.phase is Phase.FAILED:
            raise ApiError(500, f"the engine failed: {self.failure}")
        if self.phase is not Phase.READY:
            raise ApiError(503, f"the engine is {self.phase}")
        request = self._open[generation.request_id] = OpenRequest()
        header = {
            "kind": "generate",
            "request_id": generation.request_id,
            "arrived_at_ns": generation.arrived_at_ns,
            "max_tokens": generation.max_tokens,
            "ignore_eos": generation.ignore_eos,
            "temperature": generation.sampling.temperature,
            "seed": generation.sampling.seed,
            "ttft_slo_ns": generation.slo.ttft_ns,
            "tbt_slo_ns": generation.slo.tbt_ns,
            "task": generation.task,
        }
        if generation.hand_over is not HandOver.NONE:
            header |= {
                "hand_over": generation.hand_over,
                "first_token": generation.first_token,
                "ticket": generation.ticket,
            }
        self._send(header, pack_token_ids(generation.token_ids))
        return request

    def send_kv(self, request_id: str, to: str) -> None:
        """A prefilled request's KV may leave for this decode instance."""
        self._send({"kind": "send", "request_id": request_id, "to": to})

    def close(self, request_id: str) -> None:
        """The client has its answer, or left: an unfinished request is cancelled. Unknown ids are ignored."""
        request = self._open.pop(request_id, None)
        if request is None:
            return
        if not request.over:
            self._send({"kind": "cancel", "request_id": request_id})
        for ticket in request.unclaimed():
            self._on_unclaimed(ticket)

    async def snapshot(self, reset: bool = False) -> Snapshot:
        """Counters and state; reset: the counters start anew after it. Raises EngineError when there is no answer."""
        if self.phase is not Phase.READY:
            raise EngineError(f"the engine is {self.phase}")
        self._tickets += 1
        answer = self._asked[self._tickets] = asyncio.get_running_loop().create_future()
        self._send({"kind": "ask", "ticket": self._tickets, "reset": reset})
        try:
            return await asyncio.wait_for(answer, ANSWER_WAIT_S)
        except TimeoutError as error:
            raise EngineError(f"the engine gave no answer within {ANSWER_WAIT_S:g} s") from error

    async def stop(self) -> int:
        """End the process: by message, after a while by force. Returns its exit status."""
        if self.phase is not Phase.FAILED:
            self.phase = Phase.STOPPED
            self._send({"kind": "stop"})
        try:
            status = await asyncio.wait_for(self._process.wait(), EXIT_WAIT_S)
        except TimeoutError:
            self._process.kill()
            status = await self._process.wait()
        await self._receiving
        self._writer.close()
        return status

    def _send(self, header: dict[str, Any], raw: bytes = b"") -> None:
        if not self._writer.is_closing():
            self._writer.write(encode(header, raw))

    async def _receive(self) -> None:
        reason = ""
        while (frame := await read_frame(self._reader)) is not None:
            kind = frame[0]["kind"]
            if kind in ("refused", "died"):
                reason = frame[0]["reason"]
                self._end(SettingsError(reason) if kind == "refused" else EngineError(reason))
            else:
                self._take(frame)
        if not reason and self.phase is not Phase.STOPPED:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), EXIT_WAIT_S)
            reason = f"its process ended with status {self._process.returncode}"
        self._end(EngineError(reason or "it was stopped"))
        self.ended.set()

    def _take(self, frame: Frame) -> None:
        header, _ = frame
        match header["kind"]:
            case "ready":
                self.phase = Phase.READY
                self._ready.set_result(EngineDescription(**header["description"]))
            case "outputs":
                for request_id, token_id, finish_reason in header["outputs"]:
                    self._deliver(request_id, Token(token_id, finish_reason))
            case "sent":
                if header["request_id"] in self._open:
                    self._deliver(header["request_id"], Sent(header["ticket"]))
                else:
                    self._on_unclaimed(header["ticket"])
            case "rejected":
                self._deliver(header["request_id"], ApiError(400 if header["never"] else 503, header["reason"]))
            case "failed":
                self._deliver(header["request_id"], ApiError(500, _first_line(header["reason"])))
            case "beat":
                hung = self.stall
                self._beats.beat(header["stall"], header["stalls"])
                if hung and not self.stall:
                    self._on_recovered()
            case "snapshot":
                answer = self._asked.pop(header["ticket"], None)
                if answer is not None and not answer.done():
                    answer.set_result(Snapshot.from_json(header["snapshot"]))

    def _deliver(self, request_id: str, item: Token | Sent | ApiError) -> None:
        # A request that its client left may still get what was under way.
        if request_id in self._open:
            self._open[request_id].put(item)

    def _end(self, error: SettingsError | EngineError) -> None:
        if self.phase is not Phase.STOPPED:
            self.phase = Phase.FAILED
            self.failure = self.failure or str(error)
        if not self._ready.done():
            self._ready.set_exception(error)
            self._ready.exception()  # marks it as seen: nobody may be waiting
        for request in self._open.values():
            if not request.over:
                request.put(ApiError(500, f"the engine failed: {error}"))
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(EngineError(str(error)))
        self._asked.clear()


def _first_line(reason: str) -> str:
    """torch appends stacks of its own to some errors; the engine's log has them."""
    return reason.partition("\n")[0][:LONGEST_REASON]
