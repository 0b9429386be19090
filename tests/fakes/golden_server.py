"""A fake OpenAI-compatible server that answers by script and remembers what it saw.

In a test:    async with GoldenServer(after(0.05)) as server: ... server.base_url, server.seen
On its own:   python -m tests.fakes.golden_server --port 0 --mode capacity --rate-rps 20
              (prints `listening on http://127.0.0.1:PORT`)

Written on asyncio streams, not a web framework, so that a script decides each byte of each send.
"""

import argparse
import asyncio
import contextlib
import json
import socket
import struct
import time

from tests.fakes.golden_script import (
    MODEL,
    End,
    Respond,
    Script,
    Seen,
    after,
    capacity,
    in_turn,
    never,
    noop,
    refused,
    stamped,
)

MODES = ("noop", "stamped", "complete", "capacity", "reject-half", "never")
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 429: "Too Many Requests", 503: "Service Unavailable"}


class GoldenServer:
    """Serves POST by `respond`; GET /health and /v1/models are answered at once and not remembered."""

    def __init__(self, respond: Respond, *, port: int = 0, remember: bool = True) -> None:
        self.respond = respond
        self.seen: list[Seen] = []
        self.connections = 0
        self._port = port
        self._remember = remember
        self._count = 0
        self._open: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.base_url = ""

    async def __aenter__(self) -> "GoldenServer":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port, backlog=4096)
        self.base_url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        self.connections += 1
        connection = self.connections
        try:
            while (seen := await self._read(reader, connection)) is not None:
                if seen.method == "GET":
                    await _get(seen, writer)
                elif not await self._answer(seen, reader, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client left, or the test is over
        finally:
            self._open.discard(task)
            writer.close()

    async def _read(self, reader: asyncio.StreamReader, connection: int) -> Seen | None:
        head = await reader.readuntil(b"\r\n\r\n")
        arrived_at_ns = time.monotonic_ns()
        request_line, *lines = head.decode("latin-1").split("\r\n")
        method, path, _ = request_line.split(" ", 2)
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines if line)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        seen = Seen(self._count, method, path, headers, body, arrived_at_ns, connection)
        if method == "POST":
            self._count += 1
            if self._remember:
                self.seen.append(seen)
        return seen

    async def _answer(self, seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Play the script; whether the connection can take another request."""
        script = self.respond(seen)
        # Nothing more comes from this client before the reply ends: a byte, or the end, means that it left.
        leaving = asyncio.ensure_future(reader.read(1)) if _takes_time(script) else None
        try:
            if leaving is None:
                _write_steps(script, writer)
            elif not await _told(script, leaving) or not await self._play_steps(seen, script, writer, leaving):
                seen.left_at_ns = time.monotonic_ns()
                return False
        finally:
            if leaving is not None:
                leaving.cancel()
                with contextlib.suppress(asyncio.CancelledError, ConnectionError):
                    await leaving
        if script.end in (End.KEEP, End.CLOSE):
            writer.write(b"0\r\n\r\n")
        if script.end is End.RESET:
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
            return False
        await writer.drain()
        seen.ended_at_ns = time.monotonic_ns()
        return script.end is End.KEEP

    @staticmethod
    async def _play_steps(
        seen: Seen, script: Script, writer: asyncio.StreamWriter, leaving: "asyncio.Future[bytes]"
    ) -> bool:
        """Write each step when it is due; False when the client left first."""
        head = _head(script)
        for step in script.steps:
            wait_s = seen.arrived_at_ns / 1e9 + step.at_s - time.monotonic()
            if wait_s > 0:
                await asyncio.wait((leaving,), timeout=wait_s)
            if leaving.done():
                return False
            writer.write(head + _chunked(step.data))
            head = b""
            await writer.drain()
        if script.end is End.HANG:
            if script.steps or script.status != 200:
                writer.write(head)
            await asyncio.wait((leaving,))
            return False
        writer.write(head)
        return True


def _takes_time(script: Script) -> bool:
    return script.end is End.HANG or script.until is not None or any(step.at_s > 0 for step in script.steps)


async def _told(script: Script, leaving: "asyncio.Future[bytes]") -> bool:
    """Wait for what the script waits for; False when the client left first."""
    if script.until is None:
        return True
    told = asyncio.ensure_future(script.until.wait())
    await asyncio.wait((told, leaving), return_when=asyncio.FIRST_COMPLETED)
    told.cancel()
    return not leaving.done()


def _write_steps(script: Script, writer: asyncio.StreamWriter) -> None:
    writer.write(_head(script) + b"".join(_chunked(step.data) for step in script.steps))


def _chunked(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data) if data else b""


def _head(script: Script) -> bytes:
    lines = [
        f"HTTP/1.1 {script.status} {_REASONS.get(script.status, 'Status')}",
        f"Content-Type: {script.content_type}",
        "Transfer-Encoding: chunked",
        *(f"{name}: {value}" for name, value in script.headers.items()),
    ]
    if script.end is not End.KEEP:
        lines.append("Connection: close")
    return "\r\n".join([*lines, "", ""]).encode()


async def _get(seen: Seen, writer: asyncio.StreamWriter) -> None:
    known = {"/health": {}, "/v1/models": {"object": "list", "data": [{"id": MODEL, "object": "model"}]}}
    status = 200 if seen.path in known else 404
    body = json.dumps(known.get(seen.path, {"error": {"message": "no such path"}})).encode()
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    await writer.drain()


def _respond_of(arguments: argparse.Namespace) -> Respond:
    complete = after(arguments.ttft_s, arguments.gap_s)
    return {
        "noop": noop,
        "stamped": stamped,
        "complete": lambda: complete,
        "capacity": lambda: capacity(arguments.rate_rps),
        "reject-half": lambda: in_turn(refused(503), complete),
        "never": lambda: lambda _: never(),
    }[arguments.mode]()


async def _main(arguments: argparse.Namespace) -> None:
    async with GoldenServer(_respond_of(arguments), port=arguments.port, remember=False) as server:
        print(f"listening on {server.base_url}", flush=True)
        await asyncio.Event().wait()


def _parse(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Fake OpenAI-compatible server that answers by script.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--mode", choices=MODES, default="noop")
    parser.add_argument("--ttft-s", type=float, default=0.0)
    parser.add_argument("--gap-s", type=float, default=0.0)
    parser.add_argument("--rate-rps", type=float, default=10.0)
    return parser.parse_args(words)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_main(_parse()))
