"""Walks of the rivals' batching rules, worked out by hand."""

from collections.abc import Sequence

import pytest

from baselines.policies.chunked_prefill import ChunkBatching
from baselines.policies.distserve import TokenLimitedBatching, distserve_order
from baselines.policies.request_restart import RequestRestart
from baselines.policies.step_rules import BegunFirst
from engine.core.ports import Batching, ItemState, OnPreempt, Share, WorkItem
from engine.scheduling.policies.edf import EDF
from engine.scheduling.policies.fcfs import FCFS
from engine.scheduling.policies.non_preemptive import NonPreemptive
from engine.scheduling.policies.s_edf import SlackEDF
from tests.scheduling.rig import MS, Rig, TokenPredictor, always, item, request


def taken(batching: Batching, *items: WorkItem, fits: object = always) -> list[tuple[int, int]]:
    shares = batching.select(list(items), fits, TokenPredictor(), 0)  # type: ignore[arg-type]
    return [(share.item.key, share.tokens) for share in shares]


def but_not(*keys: int) -> object:
    def fits(shares: Sequence[Share]) -> bool:
        return not {share.item.key for share in shares} & set(keys)

    return fits


def test_token_limited_batching_adds_in_order_while_the_sum_stays_within_the_bound() -> None:
    items = [item(1, tokens=50), item(2, tokens=30), item(3, tokens=20), item(4, tokens=1)]
    assert taken(TokenLimitedBatching(100), *items) == [(1, 50), (2, 30), (3, 20)]
    # The first that is too much ends the batch: nobody overtakes.
    assert taken(TokenLimitedBatching(99), *items) == [(1, 50), (2, 30)]


def test_a_prompt_longer_than_the_bound_runs_alone() -> None:
    assert taken(TokenLimitedBatching(100), item(1, tokens=101), item(2, tokens=1)) == [(1, 101)]


def test_token_limited_batching_keeps_to_memory_and_to_waiting_prompts() -> None:
    items = [item(1, tokens=5), item(2, tokens=5), item(3, tokens=5, state=ItemState.PREEMPTED), item(4, tokens=5)]
    assert taken(TokenLimitedBatching(100), *items, fits=but_not(2)) == [(1, 5), (4, 5)]
    assert taken(TokenLimitedBatching(100), *items, fits=but_not(1)) == []


def test_distserve_is_first_come_first_served_without_preemption() -> None:
    rig = Rig(distserve_order(), TokenLimitedBatching(100))
    rig.arrive(request("A", 500))
    rig.arrive(request("B", 60, slo_ns=MS, at_ns=1), request("C", 50, slo_ns=1, at_ns=1), request("D", 50, at_ns=1))
    rig.drain()
    assert rig.runs == ["A", "B", "C+D"]
    assert rig.scheduler.report().blocking_ns == ()


def test_a_chunk_is_packed_from_several_requests_in_order() -> None:
    items = [item(1, tokens=30), item(2, tokens=30, context=64), item(3, tokens=100), item(4, tokens=5)]
    assert taken(ChunkBatching(100), *items) == [(1, 30), (2, 30), (3, 40)]
    assert taken(ChunkBatching(60), *items) == [(1, 30), (2, 30)]
    assert taken(ChunkBatching(20), *items) == [(1, 20)]
    assert taken(ChunkBatching(200), *items) == [(1, 30), (2, 30), (3, 100), (4, 5)]


def test_a_chunk_passes_over_what_does_not_fit_and_what_does_not_wait() -> None:
    items = [item(1, tokens=30), item(2, tokens=30), item(3, tokens=9, state=ItemState.PREEMPTED), item(4, tokens=50)]
    assert taken(ChunkBatching(64), *items, fits=but_not(2)) == [(1, 30), (4, 34)]
    assert taken(ChunkBatching(64), *items, fits=but_not(1)) == []


@pytest.mark.parametrize(
    ("policy", "runs"),
    [
        (FCFS(), ["A", "A", "A+B", "B+C+D"]),
        (EDF(), ["A", "D+B", "B+A", "A+C"]),
        (SlackEDF(), ["A", "D+B", "B+A", "A+C"]),
    ],
)
def test_chunks_work_in_every_order(policy: FCFS | EDF | SlackEDF, runs: list[str]) -> None:
    """A of 250 tokens is under way in chunks of 100 when B (75), C (35) and D (40) come. Nothing is computed twice."""
    rig = Rig(NonPreemptive(policy), ChunkBatching(100))
    rig.arrive(request("A", 250, slo_ns=500 * MS))
    rig.arrive(
        request("B", 75, slo_ns=300 * MS, at_ns=1),
        request("C", 35, slo_ns=900 * MS, at_ns=1),
        request("D", 40, slo_ns=100 * MS, at_ns=1),
    )
    rig.drain()
    assert rig.scheduler.report().prefill_tokens == 250 + 75 + 35 + 40
    assert rig.world.now_ns() == 400_000
    assert rig.runs == runs
    rig.check_baseline()


def test_a_request_keeps_its_kv_between_chunks() -> None:
    rig = Rig(NonPreemptive(FCFS()), ChunkBatching(100))
    rig.arrive(request("A", 250, max_tokens=2))
    free = rig.scheduler.kv_free_blocks
    rig.step()
    rig.step()
    assert rig.runs == ["A", "A", "A"]
    assert rig.scheduler.kv_free_blocks == free
    rig.drain()
    assert [output.finish_reason for output in rig.sink.tokens["A"]] == [None, None, None, "length"]
    rig.check_baseline()


def test_restart_wraps_any_policy() -> None:
    plan = RequestRestart(FCFS()).plan(Rig().scheduler._view, 0)
    assert plan.preempt is OnPreempt.RESTART


def test_a_step_budget_goes_in_order_and_cuts_the_last() -> None:
    items = [item(1, tokens=30, context=64), item(2, tokens=30), item(3, tokens=100), item(4, tokens=5)]
    assert taken(ChunkBatching(100, overtake=False), *items) == [(1, 30), (2, 30), (3, 40)]
    assert taken(ChunkBatching(20, overtake=False), *items) == [(1, 20)]
    assert taken(ChunkBatching(165, overtake=False), *items) == [(1, 30), (2, 30), (3, 100), (4, 5)]


def test_nobody_overtakes_a_prompt_that_does_not_fit_in_the_step() -> None:
    items = [item(1, tokens=30), item(2, tokens=30), item(3, tokens=5)]
    assert taken(ChunkBatching(100, overtake=False), *items, fits=but_not(2)) == [(1, 30)]
    assert taken(ChunkBatching(100, overtake=False), *items, fits=but_not(1)) == []
    waiting = [items[0], item(2, tokens=9, state=ItemState.PREEMPTED), items[2]]
    assert taken(ChunkBatching(100, overtake=False), *waiting) == [(1, 30), (3, 5)]


def test_what_has_begun_comes_before_what_is_more_urgent() -> None:
    class Fixed:
        items = (
            item(5, due_at_ns=1),
            item(4, due_at_ns=2, context=8),
            item(3, due_at_ns=3, state=ItemState.PREEMPTED),
            item(6, due_at_ns=4, state=ItemState.EXECUTING),
            item(2, due_at_ns=5),
            item(1, due_at_ns=6, context=8),
        )
        executing = items[3]

    assert [each.key for each in BegunFirst(EDF()).plan(Fixed(), 0).order] == [6, 1, 3, 4, 5, 2]


@pytest.mark.parametrize(
    ("policy", "runs"),
    [(FCFS(), ["A", "A", "A+B", "B+C+D"]), (EDF(), ["A", "A", "A+D+B", "B+C"])],
)
def test_steps_of_a_server_finish_what_they_began(policy: FCFS | EDF, runs: list[str]) -> None:
    """A of 250 tokens is under way in steps of 100 when B (75), C (35) and D (40) come: they ride with its last one."""
    rig = Rig(NonPreemptive(BegunFirst(policy)), ChunkBatching(100, overtake=False))
    rig.arrive(request("A", 250, slo_ns=500 * MS))
    rig.arrive(
        request("B", 75, slo_ns=300 * MS, at_ns=1),
        request("C", 35, slo_ns=900 * MS, at_ns=1),
        request("D", 40, slo_ns=100 * MS, at_ns=1),
    )
    rig.drain()
    assert rig.runs == runs
    assert rig.world.now_ns() == 400_000
    rig.check_baseline()


@pytest.mark.parametrize("rule", [ChunkBatching, TokenLimitedBatching])
def test_bounds_below_one_token_are_refused(
    rule: type[ChunkBatching] | type[TokenLimitedBatching],
) -> None:
    with pytest.raises(ValueError, match="must be at least 1, got 0"):
        rule(0)
