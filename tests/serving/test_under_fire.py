"""What hostile and broken clients send: each gets a fitting status or is dropped, and the server serves on."""

import asyncio
import contextlib
import gzip
import json
import random
import socket
import struct
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.serving.http_process import many_connections_allowed
from tests.serving import fake_engine
from tests.serving.server_process import FAKE, REAL, ServerProcess, eventually, running

QUEUE = 8
CLIENT_TIMEOUT_S = 2.0
KEEP_ALIVE_S = 1.0
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
CONNECTIONS = 2000


@contextlib.contextmanager
def serving_on(*flags: str) -> Iterator[ServerProcess]:
    """A server that, after all that was done to it, lives and serves, with nothing left open."""
    with running(["--max-queue", str(QUEUE), *flags]) as started:
        yield started
        eventually(lambda: started.state()["open_requests"] == 0, "nothing is left open")
        assert started.complete([1], max_tokens=1)[0] == 200
        assert started.process.poll() is None


@pytest.fixture(scope="module", name="patient")
def _patient() -> Iterator[ServerProcess]:
    with serving_on() as started:
        yield started


@pytest.fixture(name="server")
def _server(patient: ServerProcess) -> Iterator[ServerProcess]:
    yield patient
    eventually(lambda: patient.state()["open_requests"] == 0, "nothing is left open")
    assert patient.complete([1], max_tokens=1)[0] == 200


@pytest.fixture(scope="module")
def hasty() -> Iterator[ServerProcess]:
    """A server of short limits, for the tests that wait them out: a busy machine may exceed them by itself."""
    limits = ("--client-timeout-s", str(CLIENT_TIMEOUT_S), "--keep-alive-s", str(KEEP_ALIVE_S))
    with serving_on(*limits) as started:
        yield started


def connected(server: ServerProcess) -> socket.socket:
    """Far from the 75 s after which a server without limits closes what says nothing."""
    return socket.create_connection(("127.0.0.1", server.port), timeout=40)


def all_of(connection: socket.socket) -> bytes:
    """What the server says until it closes."""
    pieces = []
    try:
        while piece := connection.recv(65536):
            pieces.append(piece)
    except ConnectionResetError:
        pass  # closed with our bytes unread
    return b"".join(pieces)


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def its_end_is_open(connection: socket.socket) -> bool:
    """Whether the kernel still has the server's end of a connection."""
    ours, theirs = (f"0100007F:{end()[1]:04X}" for end in (connection.getsockname, connection.getpeername))
    table = [line.split()[1:3] for line in Path("/proc/net/tcp").read_text().splitlines()]
    return [theirs, ours] in table


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\x00\xff\xfe\x80" * 50 + b"\r\n\r\n", 400),
        (b"GET\r\n\r\n", 400),
        (b"POST /v1/completions HTTP/9.9\r\n\r\n", 400),
        (HEAD + b"Content-Length: -5\r\n\r\n", 400),
        (HEAD + b"Content-Length: x\r\n\r\n", 400),
        (HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (HEAD + b"X: " + b"y" * 100_000 + b"\r\n\r\n", 400),
        (b"GET /" + b"y" * 100_000 + b" HTTP/1.1\r\n\r\n", 400),
        (HEAD + b"Content-Encoding: frob\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}", 415),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\r\n", 400),  # TLS on a plain port
    ],
)
def test_what_is_no_http_is_a_400_without_a_traceback(server: ServerProcess, sent: bytes, status: int) -> None:
    with connected(server) as connection:
        connection.sendall(sent)
        answer = all_of(connection)
    assert status_of(answer) == status, answer
    assert b"Traceback" not in answer
    assert b".py" not in answer


def test_ten_million_tokens_are_too_large_and_the_others_do_not_wait(server: ServerProcess) -> None:
    body = b'{"prompt": [' + b"7," * 9_999_999 + b"7]}"
    with connected(server) as connection:
        connection.sendall(HEAD + f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode())
        with contextlib.suppress(ConnectionError):  # it need not wait for the rest
            connection.sendall(body)
        answer = all_of(connection)
    assert status_of(answer) == 413
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == 413


def test_a_long_text_is_refused_or_served_as_a_short_one(server: ServerProcess) -> None:
    padded = {"prompt": [1, 2], "max_tokens": 2, "user": "x" * 1_000_000}
    assert server.call("POST", "/v1/completions", padded)[1]["choices"][0]["token_ids"] == [100, 101]
    status, body = server.complete("x" * 1_900_000)
    assert (status, body["error"]["param"]) == (400, "prompt")


@pytest.mark.parametrize(
    ("packed", "encoding", "status"),
    [
        (gzip.compress(b'{"prompt": [1]}'), "gzip", 200),
        (zlib.compress(b'{"prompt": [1]}'), "deflate", 200),
        (b'{"prompt": [1]}', "identity", 200),
        (gzip.compress(b" " * 20_000_000), "gzip", 413),
        (gzip.compress(b'{"prompt": [1]}')[:-9], "gzip", 400),
        (gzip.compress(b'{"prompt": [1]}') + b"x", "gzip", 400),
        (b"not packed", "gzip", 400),
        (b"{}", "br", 415),
    ],
    ids=["gzip", "deflate", "identity", "bomb", "cut", "goes on", "other", "unknown"],
)
def test_packed_bodies(server: ServerProcess, packed: bytes, encoding: str, status: int) -> None:
    got, body = server.call("POST", "/v1/completions", packed, headers={"Content-Encoding": encoding})
    assert got == status, body


def test_a_body_that_does_not_come_is_a_408_and_takes_a_place_until_then(hasty: ServerProcess) -> None:
    slow = [connected(hasty) for _ in range(QUEUE)]
    for each in slow:
        each.sendall(HEAD + b'Content-Length: 100\r\n\r\n{"prompt": [1')
    eventually(lambda: hasty.complete([1])[0] == 503, "the slow ones fill the server")
    answers = [all_of(each) for each in slow]
    assert {status_of(answer) for answer in answers} == {408}
    assert b"did not come within 2 s" in answers[0]
    for each in slow:
        each.close()


def test_a_connection_that_never_asks_is_closed(hasty: ServerProcess) -> None:
    for sent in (b"", b"POST /v1/comp", HEAD):
        with connected(hasty) as connection:
            connection.sendall(sent)
            all_of(connection)


def test_an_answer_left_unread_ends_the_connection(hasty: ServerProcess) -> None:
    """999 chunks of a stream are more than small buffers on both sides hold."""
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        connection.connect(("127.0.0.1", hasty.port))
        body = json.dumps({"prompt": [1], "max_tokens": 999, "stream": True}).encode()
        connection.sendall(HEAD + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        connection.settimeout(40)
        assert connection.recv(1), "the answer begins"
        eventually(lambda: not its_end_is_open(connection), "the server ends it")
        assert b"[DONE]" not in all_of(connection)


def test_connections_reset_at_any_moment(server: ServerProcess) -> None:
    body = json.dumps({"prompt": [fake_engine.HOLD], "stream": True}).encode()
    whole = HEAD + f"Content-Length: {len(body)}\r\n\r\n".encode() + body
    draw = random.Random(5)
    for _ in range(100):
        connection = connected(server)
        # Zero seconds to linger: the close is a reset.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.sendall(whole[: draw.randint(1, len(whole))])
        connection.close()


def test_random_bytes_as_bodies_never_break_it(server: ServerProcess) -> None:
    draw = random.Random(11)
    good = json.dumps({"prompt": [1, 2], "max_tokens": 2, "ttft_slo_s": 1.5, "vllm_xargs": {"ttft_slo": 1.5}}).encode()
    seen: Counter[int] = Counter()
    for _ in range(300):
        body = bytearray(good)
        for _ in range(draw.randint(1, 6)):
            at = draw.randrange(len(body))
            match draw.randrange(3):
                case 0:
                    body[at] = draw.randrange(256)
                case 1:
                    del body[at]
                case _:
                    body[at:at] = draw.choice((b"-", b"1e999", b"null", b"[", b"}", b"\xff", b"9" * 30, b"NaN"))
        status, answer = server.call("POST", "/v1/completions", bytes(body))
        seen[status] += 1
        assert status in (200, 400), (body, answer)
    assert len(seen) == 2, seen


async def one_of_many(port: int, body: bytes, all_open: asyncio.Barrier) -> tuple[int, str | None, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    await all_open.wait()
    writer.write(HEAD + f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
    answer = await reader.read()
    writer.close()
    head, _, rest = answer.partition(b"\r\n\r\n")
    retry = [line for line in head.decode().split("\r\n") if line.startswith("Retry-After")]
    return status_of(answer), retry[0] if retry else None, rest


async def many(port: int, connections: int, **fields: object) -> list[tuple[int, str | None, bytes]]:
    body = json.dumps({"stream": True, "ignore_eos": True, **fields}).encode()
    all_open = asyncio.Barrier(connections)
    return await asyncio.gather(*(one_of_many(port, body, all_open) for _ in range(connections)))


@pytest.mark.parametrize(
    ("kind", "flags", "fields"),
    [
        (FAKE, (), {"prompt": [1], "max_tokens": 4}),
        (REAL, ("--model", "cpu_tiny"), {"prompt": [5] * 16, "max_tokens": 2}),
    ],
    ids=["fake", "tiny"],
)
def test_2000_connections_at_once_are_answered_or_refused_clearly(
    kind: tuple[str, ...], flags: tuple[str, ...], fields: dict[str, Any]
) -> None:
    assert many_connections_allowed() > CONNECTIONS + 100
    room = CONNECTIONS - 500
    # Long limits: a busy machine takes its time before the last one is connected.
    with running(
        [*flags, "--max-queue", str(room), "--keep-alive-s", "600", "--client-timeout-s", "600"], kind
    ) as full:
        answers = asyncio.run(many(full.port, CONNECTIONS, **fields))
        count = Counter(status for status, _, _ in answers)
        assert set(count) <= {200, 503}
        assert count[200] >= room
        for status, retry, rest in answers:
            events = rest.count(b"data: ")
            assert events == (fields["max_tokens"] + 1 if status == 200 else 0), rest
            assert retry == (None if status == 200 else "Retry-After: 1")
        eventually(lambda: full.state()["open_requests"] == 0, "nothing is left open")
        state = full.state()
        assert state["kv_blocks_free"] == state["kv_blocks_total"]
        assert full.complete([1], max_tokens=1)[0] == 200
