"""A server in a process of its own, for tests: start, talk, stop."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
REAL = ("-m", "engine.serving.server")
FAKE = ("-m", "tests.serving.fake_server")
LONG_S = 120.0
"""No sound server or command takes so long, however busy the machine."""
START_S = 300.0


class ServerProcess:
    """A running server. port: where it listens."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process = process
        self.port = port

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        timeout_s: float = LONG_S,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, Any]:
        """Status and JSON of one exchange; `body` may be raw bytes."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        try:
            raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
            connection.request(method, path, raw, headers or {})
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def complete(self, prompt: Any, **fields: Any) -> tuple[int, Any]:
        """One /v1/completions that is not streamed."""
        return self.call("POST", "/v1/completions", {"prompt": prompt, **fields})

    def stream(self, path: str, body: dict[str, Any]) -> list[Any]:
        """The events of one stream, decoded; [DONE] as it is."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LONG_S)
        try:
            connection.request("POST", path, json.dumps({**body, "stream": True}))
            response = connection.getresponse()
            assert response.status == 200, response.read()
            lines = response.read().decode().split("\n\n")
        finally:
            connection.close()
        data = [line.removeprefix("data: ") for line in lines if line]
        return [each if each == "[DONE]" else json.loads(each) for each in data]

    def state(self) -> dict[str, Any]:
        """/state."""
        status, body = self.call("GET", "/state")
        assert status == 200, body
        return dict(body)

    def report(self) -> dict[str, Any]:
        """/report."""
        status, body = self.call("GET", "/report")
        assert status == 200, body
        return dict(body)

    def child_pid(self) -> int:
        """Process id of the engine."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        assert len(children) == 1
        return int(children[0])

    def wait_exit(self, timeout_s: float = LONG_S) -> int:
        """Exit status."""
        return self.process.wait(timeout_s)


@contextmanager
def running(arguments: Sequence[str] = (), kind: Sequence[str] = FAKE) -> Iterator[ServerProcess]:
    """A server that is ready; killed at the end if it still runs."""
    process = popen([*kind, "--port", "0", *arguments])
    try:
        yield ServerProcess(process, _port(process))
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        process.stdout.close()


def popen(arguments: Sequence[str]) -> subprocess.Popen[str]:
    """A Python process in the repository; stdout and stderr in one pipe."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def run(arguments: Sequence[str], timeout_s: float = LONG_S) -> tuple[int, str]:
    """Exit status and output of a command that ends by itself."""
    process = popen(arguments)
    output, _ = process.communicate(timeout=timeout_s)
    return process.returncode, output


def eventually(condition: Callable[[], bool], what: str, timeout_s: float = LONG_S) -> None:
    """Ask again until it holds; fails with `what` after the time-out."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.01)


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def _port(process: subprocess.Popen[str]) -> int:
    watchdog = threading.Timer(START_S, process.kill)
    watchdog.start()
    seen = []
    try:
        for line in process.stdout:
            seen.append(line)
            if found := re.search(r"^serving .* at http://[^ ]*:(\d+)$", line):
                # What follows must not fill the pipe.
                threading.Thread(target=process.stdout.read, daemon=True).start()
                return int(found[1])
    finally:
        watchdog.cancel()
    raise AssertionError("the server did not start:\n" + "".join(seen))
