"""Readiness is a real token of the expected model; warm-up stays apart."""

import asyncio
import itertools
import socket

import pytest

from engine.core.record import Status
from harness.loadgen.errors import ServerNotReadyError
from harness.loadgen.settings import Target
from harness.loadgen.warmup import wait_until_ready, warm_up
from tests.fakes.golden_script import DONE, MODEL, after, events, in_turn, never, refused, token
from tests.fakes.golden_server import GoldenServer
from tests.loadgen.rig import RUN_S, SURELY_S, plans, run, settings, target


def test_c25_ready_after_one_real_token():
    no_token = events((0.0, token("", finish="stop")), (0.0, DONE))

    async def wait() -> int:
        async with GoldenServer(in_turn(refused(503), no_token, after(0.01))) as server:
            await wait_until_ready(target(server.base_url), RUN_S, poll_s=0.01)
            return len(server.seen)

    assert run(wait()) == 3


def test_c25_a_server_that_starts_late_is_awaited():
    async def wait() -> bool:
        with socket.socket() as kept:  # bound, so that nobody else takes the port; nobody listens there yet
            kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            kept.bind(("127.0.0.1", 0))
            port = kept.getsockname()[1]
            waiting = asyncio.create_task(wait_until_ready(target(f"http://127.0.0.1:{port}"), RUN_S, poll_s=0.01))
            await asyncio.sleep(0.1)
            assert not waiting.done()
            async with GoldenServer(after(0.0), port=port):
                await waiting
        return True

    assert run(wait())


@pytest.mark.parametrize(("respond", "why"), [(lambda _: refused(503), "HTTP 503"), (lambda _: never(), "not over")])
def test_c25_the_deadline_ends_the_wait_with_the_last_reason(respond, why: str):
    async def wait() -> None:
        async with GoldenServer(respond) as server:
            await wait_until_ready(target(server.base_url), SURELY_S, poll_s=0.01)

    with pytest.raises(ServerNotReadyError, match=why):
        run(wait())


def test_c25_a_try_that_the_deadline_cut_off_does_not_hide_the_last_answer():
    async def wait() -> None:
        async with GoldenServer(in_turn(refused(503), never())) as server:
            await wait_until_ready(target(server.base_url), SURELY_S, poll_s=0.01)

    with pytest.raises(ServerNotReadyError, match="HTTP 503"):
        run(wait())


def test_c25_another_model_is_refused_at_once():
    async def wait() -> None:
        async with GoldenServer(after(0.0)) as server:
            await wait_until_ready(Target(server.base_url, "llama3_8b"), RUN_S)

    with pytest.raises(ServerNotReadyError, match=f"serves model '{MODEL}'; asked for 'llama3_8b'"):
        run(wait())


def test_warm_up_goes_one_by_one_and_states_no_slo():
    async def warm():
        async with GoldenServer(after(0.02)) as server:
            records = await warm_up(plans(4, ttft_ms=1), target(server.base_url), settings(give_up_slo_multiple=1))
            return records, server.seen

    records, seen = run(warm())
    assert [record.status for record in records] == [Status.OK] * 4
    assert all("ttft_slo_s" not in one.json for one in seen)
    assert all(later.arrived_at_ns >= one.ended_at_ns for one, later in itertools.pairwise(seen))


def test_a_failed_warm_up_stops_before_the_run():
    async def warm() -> None:
        async with GoldenServer(lambda _: refused(500, "out of memory")) as server:
            await warm_up(plans(2), target(server.base_url), settings())

    with pytest.raises(ServerNotReadyError, match="r0 of 3 tokens ended failed: HTTP 500: out of memory"):
        run(warm())
