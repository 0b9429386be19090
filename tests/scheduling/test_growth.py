"""How the work of one scheduling call grows with what is live: operations are counted, nothing is timed."""

import math
import sys
from collections.abc import Callable

import pytest

from engine.core.events import Arrival, Completion, Output
from engine.core.ports import Batching, Policy, WorkItem
from engine.core.request import Request
from engine.core.slo import SLO
from engine.scheduling.batching import SLOAwareBatching
from engine.scheduling.live_items import LiveItems
from engine.scheduling.policies.edf import EDF
from engine.scheduling.policies.s_edf import SlackEDF
from engine.scheduling.policies.srpt import SRPT
from engine.scheduling.scheduler import Scheduler, SchedulerSettings
from tests.scheduling.rig import TokenPredictor, item, rows


class Full:
    """A scheduler with `live` requests: the first executes, the others wait, half of them late."""

    def __init__(self, live: int, policy: Policy, batching: Batching, kv_blocks: int = 1 << 40) -> None:
        self.predictor = TokenPredictor()
        limits = SchedulerSettings(kv_blocks, 16, 1 << 50, 1 << 20)
        self.scheduler = Scheduler(policy, batching, self.predictor, limits, rows)
        self.now_ns = 10**10
        self.live = live
        self.scheduler.handle([self.arrival(0, 100)], self.now_ns)
        self.scheduler.handle([self.arrival(seq, 1 + seq * 37 % 500) for seq in range(1, live)], self.now_ns)

    def arrival(self, seq: int, tokens: int) -> Arrival:
        slo_ns = 10**9 + (0 if seq == 0 else 10**9 + seq * 7919 % 1000 * 10**6)
        arrived_at_ns = self.now_ns if seq % 2 == 0 else self.now_ns - 4 * 10**9
        return Arrival(self.now_ns, seq, Request(f"r{seq}", seq, arrived_at_ns, tokens, 1, SLO(slo_ns)))

    def arrive(self) -> None:
        self.scheduler.handle([self.arrival(self.live, 50)], self.now_ns)

    def complete(self) -> None:
        self.scheduler.handle([Completion(self.now_ns, 0, 0, 100, (Output("r0", 1, "length"),))], self.now_ns)


def calls_made(run: Callable[[], None]) -> int:
    """Function calls, Python's and C's."""
    count = 0

    def on(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(on)
    try:
        run()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("policy", [SlackEDF, EDF, SRPT])
@pytest.mark.parametrize("what", ["arrive", "complete"])
@pytest.mark.parametrize("kv_blocks", [1 << 40, 8])
def test_one_call_makes_linearly_many_cheap_calls(policy: Callable[[], Policy], what: str, kv_blocks: int) -> None:
    def calls(live: int) -> int:
        return calls_made(getattr(Full(live, policy(), SLOAwareBatching(0.1, 2048), kv_blocks), what))

    small, large = calls(300), calls(3000)
    assert large <= 11 * small + 200
    assert large <= 3000 * 2.5 + 1500


def test_an_arrival_is_priced_a_few_times_however_many_wait() -> None:
    def asked(live: int) -> int:
        full = Full(live, SlackEDF(), SLOAwareBatching())
        full.predictor.asked = 0
        full.arrive()
        return full.predictor.asked

    assert asked(50) == asked(2000) <= 3


def test_items_of_waiting_requests_are_made_once() -> None:
    full = Full(200, SlackEDF(), SLOAwareBatching())
    before = {id(each) for each in full.scheduler._view.items if each.members[0].seq != 0}
    full.arrive()
    after = {id(each) for each in full.scheduler._view.items}
    assert before <= after


def test_an_item_is_placed_with_log_n_comparisons() -> None:
    class Counted:
        made = 0

        def __init__(self, value: int) -> None:
            self.value = value

        def __lt__(self, other: "Counted") -> bool:
            Counted.made += 1
            return self.value < other.value

    def placed(n: int) -> int:
        items = LiveItems()
        for key in range(n):
            items.put(with_due(key, Counted(key * 2)))
        Counted.made = 0
        items.put(with_due(n, Counted(n)))
        return Counted.made

    def with_due(key: int, due: object) -> WorkItem:
        made = item(key)
        object.__setattr__(made, "due_at_ns", due)
        return made

    assert placed(4096) <= 2 * math.log2(4096) + 4
