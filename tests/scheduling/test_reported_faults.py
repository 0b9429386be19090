"""Faults reported against other engines, in virtual time and at the sizes of the reports; every instant is exact.

Real models run the same kinds of cases: tests/torch_backend/test_scenarios.py, tests/serving/test_engine_over_http.py.
"""

from collections.abc import Callable

import pytest

from baselines.policies.chunked_prefill import ChunkBatching
from engine.core.batch import Task, TaskKind
from engine.core.events import Completion
from engine.core.ports import Batching, Policy
from engine.scheduling.batching import NoBatching, SLOAwareBatching
from engine.scheduling.policies.fcfs import FCFS
from engine.scheduling.policies.non_preemptive import NonPreemptive
from engine.scheduling.policies.s_edf import SlackEDF
from tests.fakes.fake_executor import FakeExecutor
from tests.scheduling.rig import MS, TOKEN_NS, Rig, request

LONG, SHORT, SHORTS = 16_384, 512, 20
OPERATORS = 32
LONGEST_OPERATOR_NS = LONG * TOKEN_NS // OPERATORS
ARRIVAL_NS = 5 * MS
"""Of the short ones: at a third of the long prefill, as 0.1 s are of one of 0.3 s."""


def many_operators(task: Task) -> list[int]:
    """1000 ns a token in 32 equal operators."""
    if task.kind is TaskKind.DECODE_STEP:
        return [100 * task.new_tokens]
    return [task.new_tokens * TOKEN_NS // OPERATORS] * OPERATORS


def first_tokens(rig: Rig) -> dict[str, int]:
    """Drains; the instant each request got its first token."""
    found: dict[str, int] = {}
    while events := rig.step():
        for event in events:
            if isinstance(event, Completion):
                for output in event.outputs:
                    if output.token_id is not None:
                        found.setdefault(output.request_id, event.at_ns)
    return found


def one_long_and_twenty_short(policy: Policy, batching: Batching) -> tuple[Rig, list[int]]:
    """TTFTs of the short ones, in the order they were served."""
    rig = Rig(policy, batching, world=FakeExecutor(many_operators))
    rig.world.arrive(request("A", LONG, slo_ns=1000 * MS))
    for n in range(SHORTS):
        rig.world.arrive(request(f"B{n}", SHORT, slo_ns=100 * MS, at_ns=ARRIVAL_NS))
    served = first_tokens(rig)
    rig.check_baseline()
    assert len(served) == 1 + SHORTS
    assert max(served, key=lambda name: served[name]) == "A" or isinstance(policy, NonPreemptive)
    return rig, sorted(at_ns - ARRIVAL_NS for name, at_ns in served.items() if name != "A")


@pytest.mark.parametrize("batching", [NoBatching, lambda: SLOAwareBatching(0.1, 2048)], ids=["alone", "in batches"])
def test_e01_short_prompts_wait_one_operator_and_their_queue_not_the_long_one(batching: Callable[[], Batching]) -> None:
    rig, ttft_ns = one_long_and_twenty_short(SlackEDF(), batching())
    most_together = 1 if isinstance(batching(), NoBatching) else 2048 // SHORT
    for place, waited_ns in enumerate(ttft_ns):
        queue = (place // most_together + 1) * most_together
        assert waited_ns <= LONGEST_OPERATOR_NS + queue * SHORT * TOKEN_NS
    (blocked_ns,) = rig.scheduler.report().blocking_ns
    assert 0 < blocked_ns <= LONGEST_OPERATOR_NS


def test_e01_the_rule_that_was_reported_breaks_the_same_bound() -> None:
    _, ttft_ns = one_long_and_twenty_short(NonPreemptive(FCFS()), ChunkBatching(SHORT))
    rest_of_the_long_one = LONG * TOKEN_NS - ARRIVAL_NS
    assert ttft_ns[0] > rest_of_the_long_one > LONGEST_OPERATOR_NS + SHORT * TOKEN_NS


def test_e02_an_urgent_prompt_preempts_a_running_chunk() -> None:
    rig = Rig(SlackEDF(), ChunkBatching(4096), world=FakeExecutor(many_operators))
    rig.world.arrive(request("A", LONG, slo_ns=1000 * MS))
    rig.world.arrive(request("B", SHORT, slo_ns=50 * MS, at_ns=ARRIVAL_NS))
    served = first_tokens(rig)
    # At 5 ms the second of four chunks of 4.096 ms runs: it stops there, and goes on afterwards.
    assert rig.runs[:4] == ["A", "A", "B", "~A"]
    operator_ns = 4096 * TOKEN_NS // OPERATORS
    assert served["B"] - ARRIVAL_NS <= operator_ns + SHORT * TOKEN_NS
    assert rig.scheduler.report().preemptions == 1
    rig.check_baseline()
    rig.check_replay()


def test_e03_a_preemption_a_completion_and_an_abort_in_one_round_keep_the_books() -> None:
    """The random runs of test_random_events.py check after every event; this is the round of the report."""
    rig = Rig(world=FakeExecutor(many_operators))
    rig.arrive(request("A", LONG, slo_ns=1000 * MS))
    rig.arrive(request("B", SHORT, slo_ns=100 * MS, at_ns=ARRIVAL_NS))
    asked_at_ns = rig.world.now_ns()
    stops_at_ns = -(-asked_at_ns // LONGEST_OPERATOR_NS) * LONGEST_OPERATOR_NS
    # At the very instant the pause takes effect: another urgent prompt, and B's client leaves.
    rig.world.arrive(request("C", SHORT, slo_ns=50 * MS, at_ns=stops_at_ns))
    rig.world.cancel("B", stops_at_ns)
    events = rig.step()
    assert [type(event).__name__ for event in events] == ["Preempted", "Cancelled", "Arrival"]
    rig.drain()
    assert rig.runs == ["A", "C", "~A"]
    rig.check_baseline()
    rig.check_replay()


def test_e08_the_next_request_waits_for_one_operator_of_the_prefill_nobody_wants() -> None:
    rig = Rig(world=FakeExecutor(many_operators))
    rig.arrive(request("A", LONG))
    rig.arrive(request("B", SHORT, slo_ns=20_000 * MS, at_ns=ARRIVAL_NS))
    rig.world.cancel("A", ARRIVAL_NS + MS)
    served = first_tokens(rig)
    left_in_operator_ns = -(ARRIVAL_NS + MS) % LONGEST_OPERATOR_NS
    assert served == {"B": ARRIVAL_NS + MS + left_in_operator_ns + SHORT * TOKEN_NS}
    rig.check_baseline()
