"""Large bodies are read one at a time, in a thread: the others are answered meanwhile. All together have a bound."""

import asyncio
import threading
from collections.abc import AsyncIterator
from types import SimpleNamespace

import pytest
from aiohttp.test_utils import TestClient, TestServer

from engine.serving.api_error import ApiError
from engine.serving.application import LARGE_BODY_BYTES, Application, Service
from engine.serving.engine_process import Phase
from engine.serving.settings import ServerSettings

BODIES = 4


def test_of_many_large_bodies_one_is_read_at_a_time_and_small_ones_do_not_wait() -> None:
    lock, reading, go_on = threading.Lock(), threading.Event(), threading.Event()
    at_once: list[int] = []
    active = 0

    def completion(body: bytes, _arrived_at_ns: int) -> None:
        nonlocal active
        if len(body) > LARGE_BODY_BYTES:
            with lock:
                active += 1
                at_once.append(active)
            reading.set()
            assert go_on.wait(60)
            with lock:
                active -= 1
        raise ApiError(400, "read")

    async def ask() -> None:
        engine = SimpleNamespace(phase=Phase.READY, failure=None)
        application = Application(engine, ServerSettings())  # type: ignore[arg-type]
        application.serve(Service("m", SimpleNamespace(completion=completion)))  # type: ignore[arg-type]
        async with TestClient(TestServer(application.web_application())) as client:
            large = [
                asyncio.ensure_future(client.post("/v1/completions", data=b" " * (LARGE_BODY_BYTES + 1)))
                for _ in range(BODIES)
            ]
            assert await asyncio.to_thread(reading.wait, 60)
            assert (await client.post("/v1/completions", data=b"{}")).status == 400
            assert not any(each.done() for each in large)
            go_on.set()
            assert [(await each).status for each in large] == [400] * BODIES

    asyncio.run(ask())
    assert at_once == [1] * BODIES


@pytest.mark.parametrize(
    ("headers", "length"),
    [
        ({"Content-Length": "1000"}, 1000),
        ({}, 10),
        ({"Content-Length": "10", "Content-Encoding": "identity"}, 10),
    ],
    ids=["declared", "chunked", "packed"],
)
def test_bodies_on_their_way_have_a_bound_and_give_back_what_they_took(
    monkeypatch: pytest.MonkeyPatch, headers: dict[str, str], length: int
) -> None:
    monkeypatch.setattr("engine.serving.application.MOST_BODY_BYTES", 2000)

    def completion(_body: bytes, _arrived_at_ns: int) -> None:
        raise ApiError(400, "read")

    async def ask() -> None:
        engine = SimpleNamespace(phase=Phase.READY, failure=None)
        application = Application(engine, ServerSettings(max_body_bytes=1000))  # type: ignore[arg-type]
        application.serve(Service("m", SimpleNamespace(completion=completion)))  # type: ignore[arg-type]
        go_on = asyncio.Event()

        async def slow() -> AsyncIterator[bytes]:
            yield b" "
            await go_on.wait()
            yield b" " * (length - 1)

        async with TestClient(TestServer(application.web_application())) as client:
            coming = [
                asyncio.ensure_future(client.post("/v1/completions", data=slow(), headers=headers)) for _ in range(2)
            ]
            while application._body_bytes < 2000:
                await asyncio.sleep(0.001)
            refused = await client.post("/v1/completions", data=b"{}")
            assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
            assert "2000 bytes are on their way" in await refused.text()
            go_on.set()
            assert [(await each).status for each in coming] == [400, 400]
            assert (await client.post("/v1/completions", data=b"{}")).status == 400
            assert application._body_bytes == 0

    asyncio.run(ask())
