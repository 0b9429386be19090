"""The HTTP application: routes, and how a generation becomes a reply."""

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import hdrs, web

from engine.serving.api_error import ApiError
from engine.serving.body_fields import unpacked
from engine.serving.engine_process import EngineError, Phase
from engine.serving.engine_state import Snapshot
from engine.serving.generation import Generation, ReplyOptions
from engine.serving.metrics import ServerMetrics
from engine.serving.middlewares import bearer_required, errors_as_json
from engine.serving.reply_body import DONE, ReplyWriter, sse
from engine.serving.request_body import BodyReader
from engine.serving.served_engine import OpenGeneration, ServedEngine
from engine.serving.settings import ServerSettings
from engine.serving.text import TextStream

LOG = logging.getLogger(__name__)
OPENAPI_FILE = Path(__file__).with_name("openapi.json")
LARGE_BODY_BYTES = 128 << 10
"""Longer ones are read in a thread: a megabyte of text takes a tokenizer half a second, for which nobody else waits.

One at a time: reading JSON does not let go of the interpreter, so that the event loop would wait for every such thread.
"""
MOST_BODY_BYTES = 512 << 20
"""Of all bodies that are on their way or wait to be read: a client declares a length and need not hurry."""
Parse = Callable[[bytes, int], tuple[Generation, ReplyOptions]]


@dataclass(frozen=True, slots=True)
class Service:
    """What is known once the engine is ready. model: the name the model is served under."""

    model: str
    reader: BodyReader


class Application:
    """The routes over one engine process, or a proxy. `serve` opens them for generations.

    api_key: what clients must send; None: nothing is asked for.
    """

    def __init__(self, engine: ServedEngine, settings: ServerSettings, api_key: str | None = None) -> None:
        self._engine = engine
        self._settings = settings
        self._middlewares = [errors_as_json, *([bearer_required(api_key)] if api_key is not None else [])]
        self._admitted = 0
        self._body_bytes = 0
        self._large_bodies = ThreadPoolExecutor(1, "large-bodies")
        self._service: Service | None = None
        self._started_at_s = int(time.time())
        self._metrics = _metrics()
        self._description = OPENAPI_FILE.read_bytes()
        self.stopping = False

    def serve(self, service: Service) -> None:
        """From now on generations are taken."""
        self._service = service

    def web_application(self) -> web.Application:
        """The aiohttp application."""
        app = web.Application(client_max_size=self._settings.max_body_bytes, middlewares=self._middlewares)
        app.add_routes(
            [
                web.post("/v1/completions", self._completions),
                web.post("/v1/chat/completions", self._chat),
                web.get("/v1/models", self._models),
                web.get("/v1/models/{model:.+}", self._one_model),
                web.get("/health", self._health),
                web.get("/metrics", self._metrics_page),
                web.get("/report", self._report),
                web.post("/report/reset", self._reset),
                web.get("/state", self._state),
                web.get("/openapi.json", self._openapi),
            ]
        )
        return app

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        return await self._generate(request, self._known().reader.completion)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._generate(request, self._known().reader.chat)

    def _known(self) -> Service:
        if self._service is None:
            if self._engine.phase is Phase.FAILED:
                raise ApiError(500, f"the engine failed: {self._engine.failure}")
            raise ApiError(503, "the engine is starting")
        if self.stopping:
            raise ApiError(503, "the server is stopping")
        return self._service

    async def _generate(self, request: web.Request, parse: Parse) -> web.StreamResponse:
        # Counted from here: bodies that are still coming in take memory, too.
        if self._admitted >= self._settings.max_queue:
            raise ApiError(503, f"the server is full: {self._settings.max_queue} requests are open")
        self._admitted += 1
        try:
            generation, options = await self._read(request, parse)
            return await self._reply(request, generation, options)
        finally:
            self._admitted -= 1

    async def _read(self, request: web.Request, parse: Parse) -> tuple[Generation, ReplyOptions]:
        # Chunks say nothing of the whole, nor do packed bytes: as much as is allowed, then.
        most = self._settings.max_body_bytes
        told = request.content_length if hdrs.CONTENT_ENCODING not in request.headers else None
        declared = most if told is None else min(told, most)
        if self._body_bytes + declared > max(MOST_BODY_BYTES, most):
            raise ApiError(503, f"the server is full: bodies of {self._body_bytes} bytes are on their way")
        self._body_bytes += declared
        try:
            body, arrived_at_ns = await self._body(request), time.monotonic_ns()
            if len(body) <= LARGE_BODY_BYTES:
                return parse(body, arrived_at_ns)
            return await asyncio.get_running_loop().run_in_executor(self._large_bodies, parse, body, arrived_at_ns)
        finally:
            self._body_bytes -= declared

    async def _body(self, request: web.Request) -> bytes:
        longest_s = self._settings.client_timeout_s
        try:
            async with asyncio.timeout(longest_s):
                body = await request.read()
        except TimeoutError as error:
            raise ApiError(408, f"the body did not come within {longest_s:g} s") from error
        return unpacked(body, request.headers.get(hdrs.CONTENT_ENCODING, ""), self._settings.max_body_bytes)

    async def _reply(self, request: web.Request, generation: Generation, options: ReplyOptions) -> web.StreamResponse:
        writer = ReplyWriter(
            generation.request_id, self._known().model, int(time.time()), len(generation.token_ids), options
        )
        opened = self._engine.open(generation)
        try:
            if options.stream:
                return await self._stream(request, opened, generation, options, writer)
            return await self._whole(opened, generation, writer)
        finally:
            # Also when the client left (the handler is cancelled then): what is unfinished is cancelled.
            self._engine.close(generation.request_id)

    async def _whole(self, opened: OpenGeneration, generation: Generation, writer: ReplyWriter) -> web.Response:
        text = TextStream(self._known().reader.tokenizer)
        pieces: list[str] = []
        token_ids: list[int] = []
        finish_reason = None
        while finish_reason is None:
            token = await opened.next()
            if not token_ids:
                self._first_token(generation)
            token_ids.append(token.token_id)
            pieces.append(text.add(token.token_id))
            finish_reason = token.finish_reason
        return web.json_response(writer.whole("".join([*pieces, text.rest()]), token_ids, finish_reason))

    async def _stream(
        self,
        request: web.Request,
        opened: OpenGeneration,
        generation: Generation,
        options: ReplyOptions,
        writer: ReplyWriter,
    ) -> web.StreamResponse:
        text = TextStream(self._known().reader.tokenizer)
        # The status waits for the first token: a refusal before it is a plain HTTP error.
        token = await opened.next()
        self._first_token(generation)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
        count = 0
        try:
            await response.prepare(request)
            while True:
                count += 1
                over = token.finish_reason is not None
                piece = text.add(token.token_id) + (text.rest() if over else "")
                await response.write(writer.chunk(piece, token.token_id, count == 1, token.finish_reason))
                if over:
                    break
                token = await opened.next()
            await response.write((writer.usage_chunk(count) if options.include_usage else b"") + DONE)
        except ApiError as error:
            await response.write(sse(error.body()) + DONE)
        except ConnectionError:
            LOG.debug("request %s: the client left", generation.request_id)
        return response

    def _first_token(self, generation: Generation) -> None:
        if self._metrics is not None:
            self._metrics.observe_ttft(time.monotonic_ns() - generation.arrived_at_ns)

    async def _models(self, request: web.Request) -> web.Response:
        del request
        return web.json_response({"object": "list", "data": [self._entry(self._known())]})

    async def _one_model(self, request: web.Request) -> web.Response:
        service, asked = self._known(), request.match_info["model"]
        if asked not in service.reader.limits.models:
            raise ApiError(404, f"model {asked!r} is not served here; {service.model!r} is", "model")
        return web.json_response(self._entry(service))

    def _entry(self, service: Service) -> dict[str, Any]:
        return {
            "id": service.model,
            "object": "model",
            "created": self._started_at_s,
            "owned_by": "flowprefill",
            "max_model_len": service.reader.limits.max_context_tokens,
        }

    async def _health(self, request: web.Request) -> web.Response:
        del request
        phase = self._engine.phase
        if phase is Phase.FAILED:
            return web.json_response({"status": "failed", "reason": self._engine.failure}, status=503)
        if self.stopping:
            return web.json_response({"status": "stopping"}, status=503)
        if self._service is None:
            return web.json_response({"status": "starting"}, status=503)
        if self._engine.stall:
            return web.json_response({"status": "stalled", "reason": self._engine.stall}, status=503)
        return web.json_response({"status": "ok"})

    async def _openapi(self, request: web.Request) -> web.Response:
        del request
        return web.Response(body=self._description, content_type="application/json")

    async def _metrics_page(self, request: web.Request) -> web.Response:
        del request
        if self._metrics is None:
            raise ApiError(501, "/metrics needs the Python package prometheus-client, which is not installed")
        # Of an engine that stalls it still says so, though the engine itself may give no answer.
        snapshot = await self._snapshot() if not self._engine.silent else None
        page, content_type = self._metrics.render(snapshot, self._engine.front_state())
        return web.Response(body=page, headers={"Content-Type": content_type})

    async def _report(self, request: web.Request) -> web.Response:
        del request
        return web.json_response((await self._snapshot()).to_json()["report"])

    async def _reset(self, request: web.Request) -> web.Response:
        """Reset the counters; the reply is the report up to here."""
        del request
        return web.json_response((await self._snapshot(reset=True)).to_json()["report"])

    async def _state(self, request: web.Request) -> web.Response:
        del request
        live = (await self._snapshot()).to_json()["live"]
        return web.json_response({**live, "open_requests": self._engine.open_requests})

    async def _snapshot(self, reset: bool = False) -> Snapshot:
        try:
            return await self._engine.snapshot(reset)
        except EngineError as error:
            raise ApiError(503, str(error)) from error


def _metrics() -> ServerMetrics | None:
    try:
        return ServerMetrics()
    except ImportError:
        return None
