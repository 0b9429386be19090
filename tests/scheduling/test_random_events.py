"""Random arrivals, aborts, failures and memory shortages against a scheduler in a fake world."""

import dataclasses
import random
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from baselines.policies.chunked_prefill import ChunkBatching
from baselines.policies.distserve import TokenLimitedBatching, distserve_order
from baselines.policies.request_restart import RequestRestart
from baselines.policies.step_rules import BegunFirst
from engine.core.batch import Task
from engine.core.ports import Batching, Policy
from engine.core.request import Request
from engine.core.slo import SLO
from engine.scheduling.batching import NoBatching, SLOAwareBatching
from engine.scheduling.policies.edf import EDF
from engine.scheduling.policies.fcfs import FCFS
from engine.scheduling.policies.keyed import KeyPolicy
from engine.scheduling.policies.non_preemptive import NonPreemptive
from engine.scheduling.policies.s_edf import SlackEDF
from engine.scheduling.policies.srpt import SRPT
from engine.scheduling.scheduler import SchedulerSettings
from engine.scheduling.slack import BatchDeadline
from tests.fakes.fake_executor import FakeExecutor, four_operators, uneven_operators
from tests.scheduling.rig import Rig

POLICIES: dict[str, Callable[[], Policy]] = {
    "s_edf": SlackEDF,
    "edf": EDF,
    "fcfs": FCFS,
    "srpt": SRPT,
    "last come": lambda: KeyPolicy(lambda work, now_ns: -work.arrived_at_ns),
}
PREEMPT: dict[str, Callable[[Policy], Policy]] = {
    "pause": lambda policy: policy,
    "restart": RequestRestart,
    "never": NonPreemptive,
}
BATCHINGS: dict[str, Callable[[], Batching]] = {
    "none": NoBatching,
    "slo_aware": lambda: SLOAwareBatching(0.1, 64),
    "token_limited": lambda: TokenLimitedBatching(64),
    "chunks": lambda: ChunkBatching(16),
}
OPERATORS: dict[str, Callable[[Task], list[int]]] = {
    "none": lambda task: [sum(four_operators(task))],
    "layer": four_operators,
    "operator": uneven_operators,
}
"""Operator times by granularity: a task stops between two of them only."""

SYSTEMS: dict[str, Callable[[], tuple[Policy, Batching]]] = {
    "flowprefill": lambda: (SlackEDF(), SLOAwareBatching(0.1, 64)),
    "srpt": lambda: (SRPT(), SLOAwareBatching(0.0, 40)),
    "edf alone": lambda: (EDF(), NoBatching()),
    "fcfs": lambda: (FCFS(), SLOAwareBatching(0.5, 32)),
    "distserve": lambda: (distserve_order(), TokenLimitedBatching(64)),
    "chunked": lambda: (NonPreemptive(SlackEDF()), ChunkBatching(16)),
    "chunked and paused": lambda: (SlackEDF(), ChunkBatching(24)),
    "server steps": lambda: (NonPreemptive(BegunFirst(EDF())), ChunkBatching(16, overtake=False)),
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
        policy=st.sampled_from(sorted(POLICIES)),
        preempt=st.sampled_from(sorted(PREEMPT)),
        batching=st.sampled_from(sorted(BATCHINGS)),
        granularity=st.sampled_from(sorted(OPERATORS)),
        rule=st.sampled_from(["head", "earliest_live"]),
        release_ns=st.sampled_from([0, 700, 40_000]),
        failing=st.sets(st.integers(0, 25), max_size=4),
    )
    def begin(
        self,
        policy: str,
        preempt: str,
        batching: str,
        granularity: str,
        rule: BatchDeadline,
        release_ns: int,
        failing: set[int],
    ) -> None:
        operators = OPERATORS[granularity]
        world = FakeExecutor(
            operators,
            fails_at=lambda task: task.task_id % len(operators(task)) if task.task_id in failing else None,
            kv_release_ns=release_ns,
            output_tokens={f"A{seq}": 2 for seq in range(0, 400, 5)},
        )
        limits = dataclasses.replace(WORLD, batch_deadline=rule)
        self.rig = Rig(PREEMPT[preempt](POLICIES[policy]()), BATCHINGS[batching](), limits, world)
        self.sent: list[Request] = []
        self.left: set[str] = set()

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
        self.left.add(request_id)
        self.rig.world.cancel(request_id, self.rig.world.now_ns() + wait_ns)
        self.rig.step()

    @rule()
    def duplicate(self) -> None:
        book = self.rig.scheduler._book.requests
        live = [each.request.request_id for each in book if not each.ended]
        stays = [name for name in live if name not in self.left]
        if stays:
            self.rig.world.arrive(Request(stays[0], 10_000 + len(self.sent), self.rig.world.now_ns(), 3))
            self.rig.step()
            assert "live already" in self.rig.sink.rejections[stays[0]]

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
        report, sink = self.rig.scheduler.report(), self.rig.sink
        refused = {name for name, reason in sink.rejections.items() if "live already" not in reason}
        ended = report.completed_requests + report.failed_requests + report.cancelled_requests + len(refused)
        assert ended == len(self.sent)
        for request in self.sent:
            self.check_end(request, request.request_id in refused)

    def check_end(self, request: Request, refused: bool) -> None:
        """It ended once, and whoever stayed got all tokens and nothing after the last."""
        sink, name = self.rig.sink, request.request_id
        ends = [output.finish_reason for output in sink.tokens.get(name, []) if output.finish_reason]
        failed, left = name in sink.failures, name in self.left
        times = len(ends) + failed + refused
        assert times == 1 or (left and times == 0)
        if ends and not left:
            tokens = [output.token_id for output in sink.tokens[name] if output.token_id is not None]
            assert tokens == list(range(1, len(tokens) + 1))
            assert len(tokens) == min(request.max_tokens, 2 if request.seq % 5 == 0 else request.max_tokens)
            assert sink.tokens[name][-1].finish_reason == ends[0]


RandomEvents.TestCase.settings = settings(
    max_examples=200, stateful_step_count=40, suppress_health_check=list(HealthCheck)
)
test_e03_invariants_hold_after_every_random_event = RandomEvents.TestCase


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
