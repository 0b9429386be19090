"""Random arrivals, aborts, failures and memory shortages against a scheduler in a fake world."""

import random
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from baselines.policies.chunked_prefill import ChunkBatching
from baselines.policies.distserve import TokenLimitedBatching, distserve_order
from baselines.policies.request_restart import RequestRestart
from engine.core.ports import Batching, Policy
from engine.core.request import Request
from engine.core.slo import SLO
from engine.scheduling.batching import NoBatching, SLOAwareBatching
from engine.scheduling.policies.edf import EDF
from engine.scheduling.policies.fcfs import FCFS
from engine.scheduling.policies.non_preemptive import NonPreemptive
from engine.scheduling.policies.s_edf import SlackEDF
from engine.scheduling.policies.srpt import SRPT
from engine.scheduling.scheduler import SchedulerSettings
from tests.fakes.fake_executor import FakeExecutor, four_operators
from tests.scheduling.rig import Rig

SYSTEMS: dict[str, Callable[[], tuple[Policy, Batching]]] = {
    "flowprefill": lambda: (SlackEDF(), SLOAwareBatching(0.1, 64)),
    "srpt": lambda: (SRPT(), SLOAwareBatching(0.0, 40)),
    "edf alone": lambda: (EDF(), NoBatching()),
    "fcfs": lambda: (FCFS(), SLOAwareBatching(0.5, 32)),
    "distserve": lambda: (distserve_order(), TokenLimitedBatching(64)),
    "chunked": lambda: (NonPreemptive(SlackEDF()), ChunkBatching(16)),
    "chunked and paused": lambda: (SlackEDF(), ChunkBatching(24)),
    "restart": lambda: (RequestRestart(SlackEDF()), SLOAwareBatching(0.1, 64)),
    "restart of chunks": lambda: (RequestRestart(SRPT()), ChunkBatching(16)),
}
WORLD = SchedulerSettings(
    kv_blocks=24,
    block_tokens=8,
    activation_capacity_bytes=150,
    max_context_tokens=160,
    max_preempted=2,
    max_decode_batch=3,
)


class RandomEvents(RuleBasedStateMachine):
    """Ids A0, A1, ...; every accepted request must end exactly once, and memory come back whole."""

    @initialize(
        system=st.sampled_from(sorted(SYSTEMS)),
        rule=st.sampled_from(["head", "earliest_live"]),
        release_ns=st.sampled_from([0, 700, 40_000]),
        failing=st.sets(st.integers(0, 25), max_size=4),
    )
    def begin(self, system: str, rule: str, release_ns: int, failing: set[int]) -> None:
        policy, batching = SYSTEMS[system]()
        limits = {name: getattr(WORLD, name) for name in WORLD.__dataclass_fields__}
        world = FakeExecutor(
            fails_at=lambda task: (
                task.task_id % 3 if task.task_id in failing and len(four_operators(task)) > 1 else None
            ),
            kv_release_ns=release_ns,
            output_tokens={f"A{seq}": 2 for seq in range(0, 400, 5)},
        )
        self.rig = Rig(policy, batching, SchedulerSettings(**{**limits, "batch_deadline": rule}), world)
        self.sent: list[Request] = []

    @rule(
        lengths=st.lists(
            st.tuples(
                st.integers(1, 170), st.sampled_from([1, 1, 2, 5]), st.sampled_from([None, 1, 20_000, 90_000, 10**9])
            ),
            min_size=1,
            max_size=4,
        ),
        wait_ns=st.sampled_from([0, 1, 900, 30_000]),
    )
    def arrive(self, lengths: list[tuple[int, int, int | None]], wait_ns: int) -> None:
        at_ns = self.rig.world.now_ns() + wait_ns
        for tokens, max_tokens, slo in lengths:
            seq = len(self.sent)
            self.sent.append(Request(f"A{seq}", seq, at_ns, tokens, max_tokens, SLO(slo)))
            self.rig.world.arrive(self.sent[-1])
        self.rig.step()

    @rule(which=st.integers(0, 400), wait_ns=st.sampled_from([0, 0, 300]))
    def cancel(self, which: int, wait_ns: int) -> None:
        request_id = f"A{len(self.sent) - 1 - which}" if which < len(self.sent) else "nobody"
        self.rig.world.cancel(request_id, self.rig.world.now_ns() + wait_ns)
        self.rig.step()

    @rule()
    def duplicate(self) -> None:
        live = [each.request for each in self.rig.scheduler._book.requests]
        if live:
            at_ns = self.rig.world.now_ns()
            before = len(self.rig.scheduler._book.requests)
            self.rig.world.arrive(Request(live[0].request_id, 10_000 + len(self.sent), at_ns, 3))
            self.rig.step()
            assert len(self.rig.scheduler._book.requests) <= before

    @rule(times=st.integers(1, 6))
    def go_on(self, times: int) -> None:
        for _ in range(times):
            self.rig.step()

    def teardown(self) -> None:
        if not hasattr(self, "rig"):
            return
        self.rig.drain()
        self.rig.check_baseline()
        self.rig.check_replay()
        report = self.rig.scheduler.report()
        ended = report.completed_requests + report.failed_requests + report.cancelled_requests + report.rejected
        duplicates = report.rejected - len(self.rig.sink.rejections.keys() - self._live_duplicates())
        assert ended - duplicates == len(self.sent)

    def _live_duplicates(self) -> set[str]:
        return {name for name, reason in self.rig.sink.rejections.items() if "live already" in reason}


RandomEvents.TestCase.settings = settings(
    max_examples=120, stateful_step_count=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
test_random_events = RandomEvents.TestCase


@pytest.mark.parametrize("system", sorted(SYSTEMS))
def test_e09_500_aborts_at_random_states_leave_all_memory_free(system: str) -> None:
    draw = random.Random(7)
    policy, batching = SYSTEMS[system]()
    rig = Rig(policy, batching, WORLD, FakeExecutor(kv_release_ns=500))
    states: set[str] = set()
    for seq in range(500):
        at_ns = rig.world.now_ns()
        slo = draw.choice([None, 20_000, 90_000, 10**9])
        rig.arrive(Request(f"A{seq}", seq, at_ns, draw.randint(1, 120), draw.choice([1, 3]), SLO(slo)))
        for _ in range(draw.randint(0, 3)):
            rig.step()
        live = [each for each in rig.scheduler._book.requests if not each.ended]
        if live:
            victim = draw.choice(live)
            states.add(victim.stand.value)
            rig.cancel(victim.request.request_id)
    rig.drain()
    rig.check_baseline()
    assert {"waiting", "executing", "decoding"} <= states
