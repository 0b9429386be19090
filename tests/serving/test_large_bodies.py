"""Large bodies are read one at a time, in a thread: the others are answered meanwhile."""

import asyncio
import threading
from types import SimpleNamespace

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
