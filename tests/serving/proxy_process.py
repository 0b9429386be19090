"""A proxy in a process of its own, for tests: its instances by name, and what must never be left."""

import http.client
import json
import os
import signal
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from engine.serving.kv_files import KVFolder
from tests.serving.server_process import LONG_S, ServerProcess, eventually, running

REAL_PROXY = ("-m", "engine.serving.proxy")
FAKE_PROXY = ("-m", "tests.serving.fake_proxy")


class ProxyProcess:
    """A running proxy and the folder its KV goes through."""

    def __init__(self, server: ServerProcess, folder: Path) -> None:
        self.server = server
        self.files = KVFolder(folder)

    def pids(self) -> dict[str, int]:
        """Instances by name."""
        pid = self.server.process.pid
        found = {}
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            words = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
            if b"--name" in words:
                found[words[words.index(b"--name") + 1].decode()] = int(child)
        return found

    def kill(self, name: str) -> None:
        """kill -9, and wait until the proxy has another one that serves."""
        old = self.pids()[name]
        os.kill(old, signal.SIGKILL)
        eventually(lambda: self.pids().get(name, old) != old, f"{name} is started again", LONG_S)

    def healthy(self) -> bool:
        """Whether every role can serve."""
        return self.server.call("GET", "/health")[0] == 200

    def begin(self, what: int, max_tokens: int = 5, prompt_tokens: int = 4) -> "Stream":
        """A streamed completion whose prompt begins with this token."""
        return Stream(self.server.port, [what, *[100] * (prompt_tokens - 1)], max_tokens)

    def check_nothing_left(self) -> None:
        """Nobody is served, and nothing is held: no request, no KV block, no file."""
        eventually(self._at_rest, f"all is given back: {self.server.state()}, {self.files.names()}", LONG_S)

    def _at_rest(self) -> bool:
        state = self.server.state()
        busy = [state[key] for key in ("waiting", "executing", "preempted", "decoding", "handing_over")]
        whole = state["kv_blocks_free"] == state["kv_blocks_total"]
        return not any(busy) and whole and not state["open_requests"] and not self.files.names()


class Stream:
    """A client's end of one stream."""

    def __init__(self, port: int, prompt: list[int], max_tokens: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LONG_S)
        body = {"prompt": prompt, "max_tokens": max_tokens, "stream": True, "ignore_eos": True}
        self._connection.request("POST", "/v1/completions", json.dumps(body))
        self._response: http.client.HTTPResponse | None = None

    def event(self) -> Any:
        """The next event, decoded; [DONE] as it is, an answer that is no stream as its body; None at the end."""
        if self._response is None:
            self._response = self._connection.getresponse()
            if self._response.status != 200:
                return json.loads(self._response.read())
        while (line := self._response.readline()) == b"\n":
            pass
        data = line.decode().removeprefix("data: ").strip()
        return data if data in ("[DONE]", "") else json.loads(data)

    def rest(self) -> list[Any]:
        """All events to the end."""
        events = []
        while events[-1:] != ["[DONE]"]:
            event = self.event()
            assert event != "", "the stream broke off"
            events.append(event)
        return events

    def leave(self) -> None:
        """Close the connection, answer or not."""
        if self._connection.sock is not None:
            self._connection.sock.shutdown(socket.SHUT_RDWR)
        self._connection.close()


@contextmanager
def running_proxy(
    folder: Path, arguments: Sequence[str] = (), kind: Sequence[str] = FAKE_PROXY
) -> Iterator[ProxyProcess]:
    """A proxy that is ready."""
    with running(["--hand-over-folder", str(folder), *arguments], kind) as server:
        yield ProxyProcess(server, folder)
