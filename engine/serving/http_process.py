"""The HTTP process: it listens from the start, starts the engine, serves, and ends with it or when told."""

import asyncio
import contextlib
import ipaddress
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from engine.serving import catalogue
from engine.serving.application import Application, Service
from engine.serving.cpu_affinity import pin_to_cpu, require_cpu
from engine.serving.engine_process import EngineError, EngineProcess, Phase
from engine.serving.engine_start import INSTANCE_COMMAND
from engine.serving.engine_state import EngineDescription
from engine.serving.middlewares import read_api_key
from engine.serving.request_body import BodyReader, Limits
from engine.serving.served_engine import ServedEngine
from engine.serving.settings import EngineSettings, ServerSettings, SettingsError
from engine.serving.text import load_chat_template, load_tokenizer

LOG = logging.getLogger(__name__)
SILENCE_LOOK_S = 1.0
Launch = Callable[[EngineSettings, Sequence[str]], Awaitable[ServedEngine]]
FAILURE_GRACE_S = 1.0
"""After the engine's death: time for open requests to get their error, and for /health to be read."""


def serve(
    engine_settings: EngineSettings,
    server_settings: ServerSettings,
    instance_command: Sequence[str] = INSTANCE_COMMAND,
    launch: Launch = EngineProcess.launch,
) -> int:
    """Run the server until it is told to stop. Returns the exit status. Raises SettingsError.

    launch: starts what is served.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    catalogue.check(engine_settings)
    require_cpu(server_settings.server_cpu, "--server-cpu")
    api_key = read_api_key(server_settings.api_key_env)
    many_connections_allowed()
    logging.getLogger("aiohttp.server").addFilter(without_traceback_of_what_is_no_http)
    listener = _listen(server_settings)
    if api_key is None and not ipaddress.ip_address(listener.getsockname()[0]).is_loopback:
        LOG.warning("anyone who reaches %s can use this server: --api-key-env is not set", server_settings.host)
    starting = partial(launch, engine_settings, instance_command)
    return asyncio.run(_run(engine_settings, server_settings, api_key, listener, starting))


async def _run(
    engine_settings: EngineSettings,
    server_settings: ServerSettings,
    api_key: str | None,
    listener: socket.socket,
    launch: Callable[[], Awaitable[ServedEngine]],
) -> int:
    stop, stop_now = _watch_signals()
    engine = await launch()
    # Only now: a child inherits the CPUs of its parent, and the engine may be pinned to another one.
    pin_to_cpu(server_settings.server_cpu, "--server-cpu")
    application = Application(engine, server_settings, api_key)
    runner = web.AppRunner(
        application.web_application(),
        access_log=None,
        handler_cancellation=True,
        handle_signals=False,
        keepalive_timeout=server_settings.keep_alive_s,
        # How long the rest of a refused body is read and thrown away before the connection is closed.
        lingering_time=server_settings.client_timeout_s,
        # aiohttp would unpack a refused body to its end: see `unpacked`.
        auto_decompress=False,
    )
    await runner.setup()
    try:
        # Listening from the start: /health says "starting" while weights load.
        await web.SockSite(runner, listener, backlog=1024).start()
        await _first_of(engine.ready(), stop.wait())
        if not stop.is_set():
            application.serve(_service(engine_settings, await engine.ready()))
            host, port = listener.getsockname()[:2]
            print(f"serving {engine_settings.model} at http://{host}:{port}", flush=True)
            await _first_of(engine.ended.wait(), stop.wait(), _tell_silence(engine))
        if engine.phase is Phase.FAILED:
            print(f"server: the engine failed: {engine.failure}", file=sys.stderr)
            await _first_of(asyncio.sleep(FAILURE_GRACE_S), stop.wait())
            return 1
        application.stopping = True
        await _first_of(_drained(engine, server_settings.drain_s), stop_now.wait())
        return 0
    except EngineError as error:
        print(f"server: the engine failed: {error}", file=sys.stderr)
        return 1
    finally:
        await engine.stop()
        await runner.shutdown()
        await runner.cleanup()


def without_traceback_of_what_is_no_http(record: logging.LogRecord) -> bool:
    """What a client sent that is no HTTP is its fault: a line in the log. Tracebacks are for faults of this server."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, HttpProcessingError):
        record.msg, record.args = "%s: no HTTP (status %s)", (record.getMessage(), error.code)
        record.exc_info, record.levelno, record.levelname = None, logging.WARNING, "WARNING"
    return True


def _service(settings: EngineSettings, engine: EngineDescription) -> Service:
    folder = Path(engine.folder) if engine.folder else None
    limits = Limits((settings.model,), engine.vocab_size, engine.max_context_tokens)
    reader = BodyReader(limits, load_tokenizer(folder), load_chat_template(folder))
    return Service(settings.model, reader)


def _listen(settings: ServerSettings) -> socket.socket:
    """A bound socket; two servers on one port are a user's mistake."""
    try:
        family = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((settings.host, settings.port), family=family, backlog=1024)
    except OSError as error:
        # The error's own text repeats the address.
        reason = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
        raise SettingsError(f"cannot listen on {settings.host} port {settings.port}: {reason}") from error
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        # Connections inherit it. Answers that a client leaves unread for so long end its connection (Linux).
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(settings.client_timeout_s * 1000))
    return listener


def many_connections_allowed() -> int:
    """Raise the soft limit of open files, one for each connection, to what this user may have; returns the limit."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # a system with a lower limit of its own: as many as there are
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _watch_signals() -> tuple[asyncio.Event, asyncio.Event]:
    """Events of the first SIGTERM or SIGINT (stop, let open requests end) and of the second (stop now)."""
    first, second = asyncio.Event(), asyncio.Event()

    def told() -> None:
        (second if first.is_set() else first).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told)
    return first, second


async def _tell_silence(engine: ServedEngine) -> None:
    """Log once when the engine's process hangs as a whole, and once when it is back. Never returns."""
    told = False
    while True:
        await asyncio.sleep(SILENCE_LOOK_S)
        if engine.silent != told:
            told = not told
            LOG.error("watchdog: %s", engine.stall) if told else LOG.info("watchdog: the engine process is back")


async def _drained(engine: ServedEngine, longest_s: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(longest_s):
            while engine.open_requests:
                await asyncio.sleep(0.02)


async def _first_of(*waits: Coroutine[Any, Any, object]) -> None:
    """Wait for the first, drop the others; its error, if any, is raised."""
    tasks = [asyncio.create_task(wait) for wait in waits]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    for task in done:
        task.result()
