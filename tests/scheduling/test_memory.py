"""What fits runs, what does not waits, what never can is refused."""

import pytest

from baselines.policies.chunked_prefill import ChunkBatching
from engine.core.batch import Task, TaskKind
from engine.core.commands import Pause
from engine.core.events import Arrival
from engine.core.ports import OnPreempt, Plan, Share, View
from engine.core.request import Request
from engine.scheduling.batching import NoBatching, SLOAwareBatching, whole
from engine.scheduling.dispatch import PlanError
from engine.scheduling.policies.fcfs import FCFS
from engine.scheduling.policies.keyed import KeyPolicy
from engine.scheduling.policies.non_preemptive import NonPreemptive
from engine.scheduling.policies.s_edf import SlackEDF
from engine.scheduling.scheduler import SchedulerSettings
from tests.fakes.fake_executor import FakeExecutor
from tests.scheduling.rig import MS, Rig, request

SMALL = SchedulerSettings(kv_blocks=10, block_tokens=10, activation_capacity_bytes=60, max_context_tokens=95)


@pytest.mark.parametrize(
    ("tokens", "max_tokens", "words"),
    [
        (90, 6, "a prompt of 90 tokens and 6 to generate exceed the limit of 95 tokens"),
        (61, 1, "the activations of its 61 tokens exceed the 60 bytes there are"),
    ],
)
def test_what_can_never_fit_is_refused_at_arrival_with_a_sentence(tokens: int, max_tokens: int, words: str) -> None:
    rig = Rig(settings=SMALL)
    rig.arrive(request("A", tokens, max_tokens=max_tokens), request("B", 5))
    rig.drain()
    assert rig.sink.rejections == {"A": words}
    assert rig.sink.never == {"A"}
    assert rig.runs == ["B"]
    assert rig.scheduler.report().rejected == 1
    rig.check_baseline()


def test_more_blocks_than_the_pool_has_are_refused() -> None:
    rig = Rig(settings=SchedulerSettings(9, 10, 1000, 200))
    rig.arrive(request("A", 90), request("B", 89))
    assert rig.sink.rejections == {"A": "the request needs 10 KV blocks; the pool has 9"}
    assert rig.runs == ["B"]


def test_a_decode_step_that_can_never_fit_is_refused_before_the_prefill() -> None:
    def bytes_of(task: Task) -> int:
        return 100 if task.kind is TaskKind.DECODE_STEP else 1

    rig = Rig(settings=SMALL, activation_bytes=bytes_of)
    rig.arrive(request("A", 5, max_tokens=2), request("B", 5))
    assert list(rig.sink.rejections) == ["A"]
    assert rig.runs == ["B"]


def test_a_chunk_is_all_that_must_fit() -> None:
    rig = Rig(NonPreemptive(SlackEDF()), ChunkBatching(30), SMALL)
    rig.arrive(request("A", 90))
    rig.drain()
    assert rig.runs == ["A", "A", "A"]
    rig.check_baseline()


def test_e05_short_of_activations_nothing_that_fits_is_held_up_and_nothing_is_preempted_in_vain() -> None:
    rig = Rig(settings=SMALL)
    rig.arrive(request("A", 40, slo_ns=900 * MS))
    rig.arrive(request("B", 30, slo_ns=10 * MS, at_ns=1), request("C", 10, slo_ns=100 * MS, at_ns=1))
    assert rig.runs == ["A"]
    rig.drain()
    # B, the most urgent, does not fit beside A's 40 bytes; C does, and C alone is why A stops.
    assert rig.runs == ["A", "C", "~A", "B"]
    rig.check_baseline()


def test_e05_only_what_does_not_fit_is_more_urgent() -> None:
    rig = Rig(settings=SMALL)
    rig.arrive(request("A", 40, slo_ns=900 * MS))
    rig.arrive(request("B", 30, slo_ns=10 * MS, at_ns=1))
    rig.drain()
    assert rig.runs == ["A", "B"]
    assert rig.scheduler.report().blocking_ns == ()


def test_blocks_for_all_tokens_are_reserved_at_the_first_start_so_that_decode_never_runs_out() -> None:
    rig = Rig(settings=SMALL)
    rig.arrive(request("A", 20, max_tokens=30), request("B", 20, max_tokens=31), request("C", 9))
    # A takes 5 of 10 blocks; B needs 6 and waits, though its prompt alone would fit; C goes.
    assert rig.scheduler.kv_free_blocks == 5
    rig.step()
    assert rig.runs[:2] == ["A", "C"]
    rig.drain()
    assert len(rig.sink.tokens["A"]) == 30
    assert len(rig.sink.tokens["B"]) == 31
    rig.check_baseline()


def test_blocks_are_free_only_when_the_executor_says_so() -> None:
    rig = Rig(settings=SMALL, world=FakeExecutor(kv_release_ns=7000))
    rig.arrive(request("A", 50), request("B", 50))
    rig.step()
    assert rig.runs == ["A"]
    assert rig.scheduler.kv_free_blocks == 4
    rig.step()
    assert rig.runs == ["A", "B"]
    assert rig.world.now_ns() == 57_000
    # What the released blocks led to is no round of the paper's.
    assert (rig.scheduler.report().decisions, rig.scheduler.report().other_decisions) == (2, 1)


def test_batches_take_only_what_fits() -> None:
    rig = Rig(batching=SLOAwareBatching(0.1, 1000), settings=SMALL)
    rig.arrive(request("A", 20), request("B", 45), request("C", 40), request("D", 39))
    assert rig.runs == ["A+C"]  # 60 bytes; with B 65
    rig.drain()
    assert rig.runs == ["A+C", "B", "D"]


def test_a_decode_step_takes_as_many_as_fit_and_all_get_their_turn() -> None:
    limits = SchedulerSettings(100, 10, 1000, 95, max_decode_batch=2)
    rig = Rig(settings=limits)
    rig.arrive(*(request(name, 5, max_tokens=3) for name in "ABC"))
    rig.drain()
    assert rig.runs == ["A", "B", "C", "A+B", "C+A", "B+C"]


def test_the_latest_prompt_is_not_the_only_one_that_waits_for_blocks_of_a_dead_id() -> None:
    rig = Rig(settings=SMALL, world=FakeExecutor(kv_release_ns=7000))
    rig.arrive(request("A", 50))
    rig.step()
    # A is done, its blocks not yet back: the id cannot be told apart and is refused; later it is welcome.
    rig.arrive(request("A", 5, at_ns=rig.world.now_ns() + 1, seq=77))
    assert "live already" in rig.sink.rejections["A"]
    rig.drain()
    rig.arrive(request("A", 5, at_ns=rig.world.now_ns() + 1, seq=78))
    rig.drain()
    assert rig.runs == ["A", "A"]
    rig.check_baseline()


def test_a_duplicate_of_a_live_request_is_refused_without_harm_to_the_first() -> None:
    rig = Rig()
    rig.arrive(request("A", 100))
    rig.arrive(request("A", 7, at_ns=1, seq=9), request("B", 10, at_ns=1, seq=0))
    assert rig.sink.rejections == {
        "A": "a request with the id 'A' is live already",
        "B": "a live request has the sequence number 0 already",
    }
    rig.drain()
    assert [output.finish_reason for output in rig.sink.tokens["A"]] == ["length"]
    assert rig.scheduler.report().completed_requests == 1
    rig.check_baseline()


class RefusesLong(FCFS):
    """Admission control in three lines."""

    def plan(self, view: View, now_ns: int) -> Plan:
        plan = super().plan(view, now_ns)
        long = tuple((i.members[0], "too long for this hour") for i in plan.order if i.new_tokens > 50)
        return Plan(plan.order, OnPreempt.NEVER, long)


def test_a_policy_can_refuse_waiting_requests() -> None:
    rig = Rig(RefusesLong())
    rig.arrive(request("A", 51), request("B", 50))
    rig.drain()
    assert rig.sink.rejections == {"A": "too long for this hour"}
    assert not rig.sink.never
    assert rig.runs == ["B"]
    rig.check_baseline()


class RefusesAll:
    def plan(self, view: View, now_ns: int) -> Plan:
        return Plan(list(view.items), reject=tuple((i.members[0], "no") for i in view.items))


def test_a_policy_that_refuses_what_executes_is_told() -> None:
    rig = Rig(RefusesAll())
    rig.arrive(request("A", 5))
    assert rig.sink.rejections == {"A": "no"}
    rig = Rig(FCFS())
    rig.arrive(request("A", 5))
    rig.scheduler._policy = RefusesAll()
    with pytest.raises(PlanError, match="rejects A, which does not wait"):
        rig.arrive(request("B", 5, at_ns=1))


class Wrong(NoBatching):
    def __init__(self, shares: object) -> None:
        self._make = shares

    def select(self, order, fits, predictor, now_ns):  # type: ignore[no-untyped-def]
        return self._make(order) if len(order) > 1 else super().select(order, fits, predictor, now_ns)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda order: [whole(order[1])], "must begin with the item that leads"),
        (lambda order: [], "must begin with the item that leads"),
        (lambda order: [whole(order[0])] * 2, "takes an item twice"),
        (lambda order: [Share(order[0], 0)], "cannot take 0 tokens"),
        (lambda order: [Share(order[0], order[0].new_tokens + 1)], "cannot take 6 tokens"),
    ],
)
def test_a_batching_rule_that_breaks_its_contract_is_told(make: object, words: str) -> None:
    rig = Rig(batching=Wrong(make))
    with pytest.raises(PlanError, match=words):
        rig.arrive(request("A", 5), request("B", 5))


def test_prompts_like_one_that_does_not_fit_are_passed_over_without_asking() -> None:
    asked: list[int] = []

    def bytes_of(task: Task) -> int:
        asked.append(task.new_tokens)
        return task.new_tokens

    rig = Rig(KeyPolicy(lambda work, now_ns: -work.key), settings=SMALL, activation_bytes=bytes_of)
    rig.arrive(request("A", 50))
    for seq in range(100, 200):
        rig.world.arrive(Request(f"w{seq}", seq, 1, 20))
    rig.step()
    asked.clear()
    rig.driver.step([Arrival(2, 10_000, Request("late", 300, 2, 21))])
    # At its arrival: 21. In the decision, all stand before A: late does not fit, then one of 20, and that is enough.
    assert asked == [21, 21, 20]


def test_blocks_that_come_back_let_waiting_work_preempt() -> None:
    rig = Rig(settings=SchedulerSettings(10, 10, 100, 95), world=FakeExecutor(kv_release_ns=15_000))
    # A takes 5 of 10 blocks and is done at 45 000, B takes 5 and starts then. C, the most urgent, needs 3: it comes at
    # 46 000, when none are free; A's are back at 60 000, and B's next boundary is at 67 500.
    rig.arrive(request("A", 45, slo_ns=50 * MS), request("B", 45, slo_ns=900 * MS))
    rig.world.arrive(request("C", 25, slo_ns=100 * MS, at_ns=46_000))
    rig.drain()
    assert rig.runs == ["A", "B", "C", "~B"]
    assert rig.scheduler.report().blocking_ns == (7500,)
    rig.check_baseline()


def test_activations_of_a_discarded_prefill_let_waiting_work_preempt() -> None:
    rig = Rig(settings=SchedulerSettings(1000, 10, 100, 200), world=FakeExecutor(kv_release_ns=MS))
    rig.arrive(request("A", 40, slo_ns=900 * MS))
    rig.arrive(request("B", 40, slo_ns=500 * MS, at_ns=1))
    rig.step()
    assert rig.runs == ["A", "B"]
    now_ns = rig.world.now_ns()
    rig.arrive(request("C", 30, slo_ns=100 * MS, at_ns=now_ns + 1))  # 20 bytes are free
    rig.cancel("A")  # now 60 are; its blocks come back much later
    assert rig.world.commands[-1] == Pause(1)
    rig.drain()
    assert rig.runs == ["A", "B", "C", "~B"]
    rig.check_baseline()


def test_a_decode_step_shrinks_until_it_fits() -> None:
    rig = Rig(settings=SchedulerSettings(100, 10, 2, 95))  # two rows
    rig.arrive(*(request(name, 2, max_tokens=2) for name in "ABC"))
    rig.drain()
    assert rig.runs == ["A", "B", "C", "A", "B+C"]
    rig.check_baseline()


def test_a_longer_prompt_runs_where_a_later_chunk_has_too_much_behind_it() -> None:
    """What a chunk holds may grow with its context: a refused chunk says nothing of a prompt that begins."""

    def bytes_of(task: Task) -> int:
        return sum(s.new_tokens + s.context_tokens for s in task.sequences)

    rig = Rig(SlackEDF(), ChunkBatching(40), SchedulerSettings(100, 10, 100, 200), activation_bytes=bytes_of)
    rig.arrive(request("A", 40, slo_ns=900 * MS))
    rig.arrive(request("B", 70, slo_ns=100 * MS, at_ns=1))  # 40 at first, then 30 after 40
    rig.step()
    assert rig.runs == ["A", "B"]
    rig.arrive(request("C", 35, slo_ns=500 * MS, at_ns=rig.world.now_ns() + 1))
    rig.drain()
    # B's second chunk needs 70 bytes beside A's 40 and waits; C is longer than 30 and fits.
    assert rig.runs == ["A", "B", "C", "~A", "B"]
