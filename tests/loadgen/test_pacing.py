"""The schedule is absolute, and waking is precise."""

import asyncio
import random
import time

import pytest

from harness.loadgen.pacing import longest_lifetime_s, pace, peak_in_flight, rate_rps
from harness.loadgen.timer import SpinWaker, TimerFdWaker, open_waker
from tests.fakes.golden_script import noop
from tests.loadgen.rig import MS, plans, played, run


class LateWaker:
    """A fake clock whose sleeps end late by a random amount, and whose time passes while requests are sent."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000_000
        self._random = random.Random(5)

    async def sleep_until(self, at_ns: int) -> None:
        if at_ns > self.now_ns:
            self.now_ns = at_ns + self._random.randrange(2 * MS)

    def close(self) -> None:
        pass


def test_c16_ten_thousand_sends_at_200_per_second_do_not_drift():
    waker = LateWaker()
    start_ns = waker.now_ns + 10 * MS
    due_ns = [index * 5 * MS for index in range(10_000)]
    lags = []

    async def send_all() -> None:
        async for index in pace(due_ns, start_ns, waker):
            lags.append(waker.now_ns - start_ns - due_ns[index])
            waker.now_ns += MS  # the send itself takes a fifth of the gap

    run(send_all())
    assert len(lags) == 10_000
    assert min(lags) >= 0
    assert max(lags) < 2 * MS
    sent = [due + lag for due, lag in zip(due_ns, lags, strict=True)]
    assert rate_rps(sent) == pytest.approx(200, rel=0.005)


def test_a_stall_is_caught_up_and_moves_nothing_after_it():
    waker = LateWaker()
    start_ns = waker.now_ns
    due_ns = [index * 10 * MS for index in range(100)]
    lags = []

    async def send_all() -> None:
        async for index in pace(due_ns, start_ns, waker):
            lags.append(waker.now_ns - start_ns - due_ns[index])
            if index == 20:
                waker.now_ns += 200 * MS

    run(send_all())
    assert max(lags[:21]) < 2 * MS
    assert lags[21] > 150 * MS
    assert max(lags[45:]) < 2 * MS


def test_c16_short_real_run_keeps_its_rate():
    result, server = played(noop(), plans(100, gap_ms=20))
    assert len(server.seen) == 100
    assert result.client.asked_rps == pytest.approx(50)
    # Relative sleeps would add up what each send costs; here one of the later ones is as punctual as one can be.
    lags = [record.sent_at_ns - record.due_at_ns for record in result.records]
    assert min(lags) >= 0
    assert min(lags[25:]) < 5 * MS


@pytest.mark.parametrize("kind", [TimerFdWaker, SpinWaker])
def test_wakers_wake_after_the_instant_and_at_once_for_a_past_one(kind: type):
    async def sleep() -> list[int]:
        waker = kind()
        late = []
        for ahead_ns in (3 * MS, 700_000, 100) * 10:
            at_ns = time.monotonic_ns() + ahead_ns
            await waker.sleep_until(at_ns)
            late.append(time.monotonic_ns() - at_ns)
        passed_ns = time.monotonic_ns() - MS
        await waker.sleep_until(passed_ns)
        waker.close()
        return late

    late = run(sleep())
    assert len(late) == 30
    assert all(lag >= 0 for lag in late)
    assert min(late) < 20 * MS  # a busy machine wakes some late, not all


def test_a_cancelled_wait_leaves_the_waker_usable():
    async def sleep() -> int:
        waker = open_waker()
        waiting = asyncio.create_task(waker.sleep_until(time.monotonic_ns() + 5 * MS))
        await asyncio.sleep(0)
        waiting.cancel()
        at_ns = time.monotonic_ns() + 30 * MS
        await waker.sleep_until(at_ns)
        waker.close()
        return time.monotonic_ns() - at_ns

    assert run(sleep()) >= 0


def test_rate_of_few_instants():
    assert rate_rps([]) == rate_rps([5]) == rate_rps([5, 5]) == 0.0
    assert rate_rps([0, 500 * MS, 1000 * MS]) == 2.0


def test_peak_in_flight_counts_a_sliding_window():
    assert peak_in_flight([], 10) == 0
    assert peak_in_flight([0, 10, 20, 30], 10) == 2
    assert peak_in_flight([0, 0, 0, 50], 9) == 3


def test_the_longest_lifetime_is_the_last_second_that_keeps_below_the_peak():
    due_ns = [index * 100 * MS for index in range(100)]  # ten a second for ten seconds
    assert longest_lifetime_s(due_ns, 35) == 3
    assert peak_in_flight(due_ns, 3000 * MS) == 31 <= 35 < peak_in_flight(due_ns, 4000 * MS) == 41
    assert longest_lifetime_s(due_ns, 10) == 0
    assert longest_lifetime_s(due_ns, 100) == 10
    assert longest_lifetime_s([], 5) == longest_lifetime_s([0, 0], 1) == 0


def test_spare_moments_are_used_and_no_other_ones():
    """Work for the first, far instant only: the second is due at once after it."""
    spent = []

    async def send_all() -> None:
        waker = open_waker()
        start_ns = time.monotonic_ns()
        async for index in pace([300 * MS, 300 * MS + 1], start_ns, waker, lambda: spent.append(1) or len(spent) < 5):
            spent.append(index * 100)
        waker.close()

    run(send_all())
    assert spent == [1] * 5 + [0, 100]
