"""Stopping a run: the first press drains, the second cuts; records are kept either way."""

import asyncio

from engine.core.record import Status
from harness.loadgen.interrupt import Interrupt
from harness.loadgen.player import play
from tests.fakes.golden_script import Respond, Script, Seen, after, never
from tests.fakes.golden_server import GoldenServer
from tests.loadgen.rig import RUN_S, plans, run, settings, target


async def _interrupted(respond: Respond, press_at: int, second_after_s: float | None = None, **changes):
    """100 requests due every 100 ms; the user presses when the server gets request number `press_at`."""
    interrupt = Interrupt()

    def pressing(seen: Seen) -> Script:
        if seen.index == press_at:
            interrupt.press()
            if second_after_s is not None:
                asyncio.get_running_loop().call_later(second_after_s, interrupt.press)
        return respond(seen)

    async with GoldenServer(pressing) as server:
        requests = plans(100, gap_ms=100)
        result = await play(requests, target(server.base_url), settings(**changes), interrupt=interrupt)
        return result, len(server.seen)


def test_c55_the_first_press_stops_sending_and_drains():
    result, seen = run(_interrupted(after(0.15), press_at=10))
    ok = [record for record in result.records if record.status is Status.OK]
    unsent = [record for record in result.records if record.status is Status.UNSENT]
    assert result.client.interrupted
    assert len(ok) == seen == result.client.requests_sent
    assert len(ok) >= 11
    assert unsent
    assert len(ok) + len(unsent) == 100
    assert {record.reason for record in unsent} == {"the run was interrupted"}


def test_c55_the_second_press_stops_hard():
    limits = {"drain_s": 2 * RUN_S, "request_timeout_s": 2 * RUN_S}  # far longer than the run may take
    result, seen = run(_interrupted(lambda _: never(), 5, second_after_s=0.1, **limits))
    statuses = [record.status for record in result.records]
    assert statuses.count(Status.UNFINISHED) == result.client.requests_sent >= seen >= 6
    assert statuses.count(Status.UNFINISHED) + statuses.count(Status.UNSENT) == 100
    assert result.client.interrupted


def test_c55_a_drain_after_an_interrupt_has_its_deadline():
    result, _ = run(_interrupted(lambda _: never(), 5, drain_s=0.2, request_timeout_s=2 * RUN_S))
    assert result.client.interrupted


def test_c55_requests_waiting_for_a_slot_are_not_sent_after_the_first_press():
    result, seen = run(_interrupted(after(0.2), press_at=1, max_in_flight=1))
    assert seen == 2
    assert [record.status for record in result.records].count(Status.OK) == 2


def test_a_run_that_is_not_interrupted_says_so():
    async def calm():
        async with GoldenServer(after(0.0)) as server:
            return await play(plans(2), target(server.base_url), settings(), interrupt=Interrupt())

    assert not run(calm()).client.interrupted


def test_cancelling_play_closes_its_connections():
    async def cancelled() -> list[bool]:
        async with GoldenServer(lambda _: never()) as server:
            playing = asyncio.create_task(play(plans(3), target(server.base_url), settings()))
            while len(server.seen) < 3:
                await asyncio.sleep(0.01)
            playing.cancel()
            await asyncio.gather(playing, return_exceptions=True)
            while not all(seen.left_at_ns for seen in server.seen):
                await asyncio.sleep(0.01)
            return [playing.cancelled()]

    assert run(cancelled()) == [True]
