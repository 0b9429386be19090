"""Orders worked out by hand."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

import pytest

from engine.core.clock import NS_PER_S
from engine.core.ports import ItemState, OnPreempt, Policy, WorkItem
from engine.scheduling.policies.edf import EDF
from engine.scheduling.policies.fcfs import FCFS
from engine.scheduling.policies.keyed import KeyPolicy
from engine.scheduling.policies.non_preemptive import NonPreemptive
from engine.scheduling.policies.s_edf import SlackEDF
from engine.scheduling.policies.srpt import SRPT
from tests.scheduling.rig import item


@dataclass
class StillView:
    given: Sequence[WorkItem]

    @property
    def items(self) -> Collection[WorkItem]:
        return sorted(self.given, key=attrgetter("due_at_ns", "tie"))

    @property
    def executing(self) -> WorkItem | None:
        return next((each for each in self.given if each.state is ItemState.EXECUTING), None)


def keys(policy: Policy, *items: WorkItem, now_ns: int = 0) -> list[int]:
    return [each.key for each in policy.plan(StillView(items), now_ns).order]


def test_s_edf_puts_what_can_be_met_first_then_reverse_edf() -> None:
    items = (
        item(1, due_at_ns=900, remaining_ns=300),  # slack at 500: 100
        item(2, due_at_ns=700, remaining_ns=300),  # -100
        item(3, due_at_ns=800, remaining_ns=300),  # 0: no longer feasible
        item(4, due_at_ns=5000, remaining_ns=10),
        item(5, due_at_ns=400, remaining_ns=0),  # -100
    )
    assert keys(SlackEDF(), *items, now_ns=500) == [1, 4, 3, 2, 5]
    assert keys(SlackEDF(), *items, now_ns=0) == [5, 2, 3, 1, 4]
    assert keys(SlackEDF(), *items, now_ns=10_000) == [4, 1, 3, 2, 5]


@pytest.mark.parametrize("offset_ns", [0, 1, 10**12, 10**18 + 7])
def test_s_edf_does_not_depend_on_the_origin_of_the_clock(offset_ns: int) -> None:
    dues = [(1, 900, 300), (2, 700, 300), (3, 800, 301), (4, 5000, 10), (5, 400, 0), (6, 701, 300)]
    items = [item(key, due_at_ns=due + offset_ns, remaining_ns=left) for key, due, left in dues]
    assert keys(SlackEDF(), *items, now_ns=500 + offset_ns) == [1, 4, 3, 6, 2, 5]


def test_s_edf_ranks_work_without_slo_after_what_can_be_met_and_once_aged_before_what_cannot() -> None:
    young = item(1, due_at_ns=31 * NS_PER_S, slo=None)
    aged = item(2, due_at_ns=30 * NS_PER_S, slo=None)
    feasible = item(3, due_at_ns=90 * NS_PER_S)
    infeasible = item(4, due_at_ns=NS_PER_S)
    assert keys(SlackEDF(), young, aged, feasible, infeasible, now_ns=30 * NS_PER_S) == [3, 2, 4, 1]
    assert keys(SlackEDF(), young, aged, feasible, infeasible, now_ns=31 * NS_PER_S) == [3, 2, 1, 4]
    # Ages at 30 s on the dot, and until then stands behind everything.
    assert keys(SlackEDF(), young, aged, feasible, infeasible, now_ns=30 * NS_PER_S - 1) == [3, 4, 2, 1]


@pytest.mark.parametrize("policy", [SlackEDF(), EDF(), SRPT(), KeyPolicy(lambda work, now_ns: work.due_at_ns)])
@pytest.mark.parametrize("now_ns", [0, 10_000])
def test_the_executing_item_wins_ties(policy: Policy, now_ns: int) -> None:
    waiting = item(1, due_at_ns=1000, remaining_ns=50)
    executing = item(2, due_at_ns=1000, remaining_ns=50, state=ItemState.EXECUTING)
    third = item(3, due_at_ns=1000, remaining_ns=50, state=ItemState.PREEMPTED)
    assert keys(policy, waiting, executing, third, now_ns=now_ns) == [2, 1, 3]


def test_edf_is_blind_to_slack() -> None:
    hopeless = item(1, due_at_ns=100, remaining_ns=10**9)
    assert keys(EDF(), item(2, due_at_ns=200), hopeless, now_ns=5000) == [1, 2]


def test_fcfs_is_the_order_of_arrival() -> None:
    assert keys(FCFS(), item(3, due_at_ns=1), item(1, due_at_ns=9), item(2, state=ItemState.EXECUTING)) == [1, 2, 3]


def test_srpt_is_the_shortest_remaining_time() -> None:
    items = [item(1, remaining_ns=30), item(2, remaining_ns=10), item(3, remaining_ns=20, due_at_ns=1)]
    assert keys(SRPT(), *items) == [2, 3, 1]


def test_a_key_function_is_a_policy() -> None:
    longest_wait = KeyPolicy(lambda work, now_ns: -(now_ns - work.arrived_at_ns))
    items = [item(1, due_at_ns=3 * NS_PER_S), item(2, due_at_ns=2 * NS_PER_S), item(3, due_at_ns=9 * NS_PER_S)]
    assert keys(longest_wait, *items, now_ns=NS_PER_S) == [2, 1, 3]


def test_non_preemptive_keeps_order_and_rejections() -> None:
    plan = NonPreemptive(SRPT()).plan(StillView([item(1, remaining_ns=2), item(2, remaining_ns=1)]), 0)
    assert ([each.key for each in plan.order], plan.preempt) == ([2, 1], OnPreempt.NEVER)


def test_the_policy_of_the_guide_works() -> None:
    """docs/adding_a_policy.md: the code block is run as it stands there."""
    text = (Path(__file__).resolve().parents[2] / "docs" / "adding_a_policy.md").read_text(encoding="utf-8")
    scope: dict[str, object] = {}
    exec(text.split("```python\n")[1].split("```")[0], scope)
    policy = scope["least_slack"]()  # type: ignore[operator]
    items = [
        item(1, due_at_ns=900, remaining_ns=100),
        item(2, due_at_ns=800),
        item(3, due_at_ns=1000, remaining_ns=300),
    ]
    assert keys(policy, *items, now_ns=50) == [3, 1, 2]
