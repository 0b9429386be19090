"""Pauses: when they are asked for, who answers, and what they cost. Four operators a prefill, 1000 ns a token."""

import pytest

from baselines.policies.request_restart import RequestRestart
from engine.core.commands import Discard, Pause, ReleaseKV, Resume, Start
from engine.core.events import Completion, Preempted
from engine.core.ports import ItemState
from engine.scheduling.batching import SLOAwareBatching
from engine.scheduling.policies.non_preemptive import NonPreemptive
from engine.scheduling.policies.s_edf import SlackEDF
from engine.scheduling.policies.srpt import SRPT
from engine.scheduling.request_book import BookError
from engine.scheduling.scheduler import SchedulerSettings
from tests.fakes.fake_executor import FakeExecutor
from tests.scheduling.rig import MS, SETTINGS, Rig, request


def kinds(rig: Rig) -> list[str]:
    return [type(command).__name__ for command in rig.world.commands]


def test_a_pause_names_no_successor_and_nothing_starts_before_it_took_effect() -> None:
    rig = Rig()
    rig.arrive(request("A", 1000))
    rig.arrive(request("B", 10, slo_ns=5 * MS, at_ns=1))
    assert rig.world.commands[1:] == [Pause(0)]
    # A yet more urgent one comes while the pause is outstanding: no second pause, and it is the one that starts.
    rig.arrive(request("C", 10, slo_ns=MS, at_ns=2))
    assert kinds(rig) == ["Start", "Pause"]
    rig.drain()
    assert rig.runs == ["A", "C", "B", "~A"]


def test_a_preempted_task_stops_at_the_next_operator_and_loses_nothing() -> None:
    rig = Rig()
    rig.arrive(request("A", 1000))  # operators of 250 000 ns
    rig.arrive(request("B", 10, slo_ns=5 * MS, at_ns=300_000))
    (stopped,) = rig.step()
    assert stopped == Preempted(500_000, stopped.event_seq, 0, 500_000, 2)
    (first_done,) = rig.step()
    assert first_done.at_ns == 510_000
    rig.drain()
    done = next(output for output in rig.sink.tokens["A"])
    assert done.finish_reason == "length"
    # 1000 tokens of its own and 10 of B: nothing was computed twice, the pause cost nothing.
    assert rig.world.now_ns() == 1_010_000
    assert rig.scheduler.report().executed_ns == 1_010_000


def test_completion_may_answer_a_pause() -> None:
    rig = Rig()
    rig.arrive(request("A", 1000))
    rig.arrive(request("B", 10, slo_ns=5 * MS, at_ns=800_000))  # in the last operator
    assert kinds(rig) == ["Start", "Pause"]
    events = rig.step()
    assert [type(event) for event in events] == [Completion]
    rig.drain()
    assert rig.runs == ["A", "B"]
    report = rig.scheduler.report()
    assert report.preemptions == 0
    assert report.blocking_ns == (200_000,)


def test_blocking_is_counted_from_the_decision_to_the_stop() -> None:
    rig = Rig()
    rig.arrive(request("A", 1000))
    rig.arrive(request("B", 10, slo_ns=5 * MS, at_ns=300_000))
    rig.drain()
    assert rig.scheduler.report().blocking_ns == (200_000,)
    assert rig.scheduler.report().preemptions == 1


def test_executed_time_counts_towards_slack_and_paused_time_does_not() -> None:
    rig = Rig()
    rig.arrive(request("A", 1000, slo_ns=1_400_000))
    rig.arrive(request("B", 10, slo_ns=300_000, at_ns=400_000))  # preempts A at 500 000, runs to 510 000
    item = rig.scheduler._view.executing
    assert item is not None
    assert (item.state, item.remaining_ns) == (ItemState.EXECUTING, 600_000)
    rig.step()
    (a,) = (each for each in rig.scheduler._view.items if each.state is ItemState.PREEMPTED)
    assert a.remaining_ns == 500_000
    rig.arrive(request("C", 1000, at_ns=505_000))
    (a,) = (each for each in rig.scheduler._view.items if each.state is ItemState.PREEMPTED)
    assert a.remaining_ns == 500_000
    rig.drain()
    assert rig.runs == ["A", "B", "~A", "C"]


def test_an_executing_prefill_wins_a_tie() -> None:
    rig = Rig()
    rig.arrive(request("B", 1000, slo_ns=10 * MS))
    rig.arrive(request("A", 10, slo_ns=10 * MS - 500, at_ns=500))  # earlier in the alphabet, due at the same instant
    rig.drain()
    assert rig.runs == ["B", "A"]


def test_never_preempting_asks_nothing_of_the_executor() -> None:
    rig = Rig(NonPreemptive(SlackEDF()))
    rig.arrive(request("A", 1000))
    rig.arrive(request("B", 10, slo_ns=5 * MS, at_ns=1))
    rig.drain()
    assert rig.runs == ["A", "B"]
    assert "Pause" not in kinds(rig)
    assert rig.scheduler.report().blocking_ns == ()


@pytest.mark.parametrize(
    ("most", "runs"), [(0, ["A", "B", "C"]), (1, ["A", "B", "C", "~A"]), (2, ["A", "B", "C", "~B", "~A"])]
)
def test_the_number_of_preempted_tasks_is_capped(most: int, runs: list[str]) -> None:
    limits = SchedulerSettings(100_000, 16, 1 << 40, 1 << 20, max_preempted=most)
    rig = Rig(settings=limits)
    rig.arrive(request("A", 1000, slo_ns=900 * MS))
    rig.arrive(request("B", 100, slo_ns=500 * MS, at_ns=1))
    rig.step()
    rig.arrive(request("C", 10, slo_ns=100 * MS, at_ns=rig.world.now_ns() + 1))
    rig.drain()
    assert rig.runs == runs


def test_a_restart_gives_memory_back_and_begins_at_zero_once_the_blocks_are_free() -> None:
    rig = Rig(RequestRestart(SlackEDF()), world=FakeExecutor(kv_release_ns=40_000))
    rig.arrive(request("A", 1000))
    rig.arrive(request("B", 10, slo_ns=5 * MS, at_ns=300_000))
    rig.step()
    assert rig.world.commands[1:4] == [Pause(0), Discard(0), ReleaseKV("A")]
    assert isinstance(rig.world.commands[4], Start)
    assert rig.scheduler.live.waiting == 1
    # B is done at 510 000, A's blocks are back at 540 000: until then it waits, though nothing executes.
    rig.step()
    assert rig.scheduler._pool.executing is None
    rig.drain()
    assert rig.runs == ["A", "B", "A"]
    assert rig.world.now_ns() == 540_000 + 1_000_000 + 40_000
    rig.check_baseline()


def test_a_restart_that_would_only_repeat_itself_is_not_asked_for() -> None:
    """[B C] as a batch is longer than D alone, but B alone is shorter: D must not throw the batch away for ever."""
    rig = Rig(RequestRestart(SRPT()), SLOAwareBatching(0.0, 100))
    rig.arrive(request("B", 12), request("C", 20))
    assert rig.runs == ["B+C"]
    rig.arrive(request("D", 15, at_ns=1))
    assert kinds(rig) == ["Start"]
    rig.drain(50)
    assert rig.runs == ["B+C", "D"]


def test_preempted_work_always_resumes_even_with_no_memory_free() -> None:
    limits = SchedulerSettings(kv_blocks=20, block_tokens=16, activation_capacity_bytes=310, max_context_tokens=1000)
    rig = Rig(settings=limits)
    rig.arrive(request("A", 290, slo_ns=900 * MS))  # 19 blocks, 290 bytes
    rig.arrive(request("B", 10, slo_ns=100 * MS, at_ns=1))  # the last block, 10 of the last 20 bytes
    rig.drain()
    assert rig.runs == ["A", "B", "~A"]
    rig.check_baseline()


def test_an_executor_that_speaks_of_a_task_nobody_started() -> None:
    rig = Rig()
    with pytest.raises(BookError, match="task 9, which is not live"):
        rig.scheduler.handle([Completion(0, 0, 9, 5, ())], 0)


def test_a_decode_step_is_not_preempted() -> None:
    rig = Rig()
    rig.arrive(request("A", 10, max_tokens=3))
    rig.step()
    assert rig.runs == ["A", "A"]
    rig.arrive(request("B", 10, slo_ns=MS, at_ns=rig.world.now_ns() + 1))
    rig.drain()
    assert "Pause" not in kinds(rig)
    # The prefill goes before the next step.
    assert rig.runs == ["A", "A", "B", "A"]
    assert Resume(0) not in rig.world.commands


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match="kv_blocks must be at least 1, got 0"):
        SchedulerSettings(0, 16, 1, 10)
    with pytest.raises(ValueError, match="batch_deadline must be head or earliest_live"):
        SchedulerSettings(1, 16, 1, 10, batch_deadline="latest")  # type: ignore[arg-type]
    assert SETTINGS.batch_deadline == "earliest_live"


def test_a_restart_counts_with_the_activations_it_frees() -> None:
    limits = SchedulerSettings(1000, 16, 100, 10_000)
    for policy, runs in ((RequestRestart(SlackEDF()), ["A", "B", "A"]), (SlackEDF(), ["A", "B"])):
        rig = Rig(policy, settings=limits)
        rig.arrive(request("A", 80))
        rig.arrive(request("B", 60, slo_ns=MS, at_ns=1))
        rig.drain()
        assert rig.runs == runs
        rig.check_baseline()


def test_a_preempted_batch_is_ordered_by_the_next_deadline_once_the_first_is_hopeless() -> None:
    """[A B] of 200 tokens stands for A, due at 2 ms, until C has held it up for so long that only B can be met."""
    rig = Rig(batching=SLOAwareBatching(0.0, 1000))
    rig.arrive(request("Z", 10, slo_ns=MS))
    rig.arrive(request("A", 100, slo_ns=2 * MS), request("B", 100, slo_ns=9 * MS))
    rig.world.arrive(request("C", 1900, slo_ns=2 * MS - 30_000, at_ns=20_000))
    while rig.runs[-1] != "C":
        assert rig.step()

    def due_of_batch() -> int:
        return next(each.due_at_ns for each in rig.scheduler._view.items if len(each.members) == 2)

    assert due_of_batch() == 2 * MS
    rig.arrive(request("D", 10, slo_ns=500 * MS, at_ns=1_800_000))
    assert due_of_batch() == 2 * MS  # 200 000 ns left, 150 000 of work
    rig.arrive(request("E", 10, slo_ns=500 * MS, at_ns=1_900_000))
    assert due_of_batch() == 9 * MS
    rig.drain()
    assert rig.runs == ["Z", "A+B", "C", "~A+B", "D+E"]


def test_paused_time_is_not_executed_time_once_it_goes_on() -> None:
    rig = Rig()
    rig.arrive(request("A", 1000))
    rig.arrive(request("B", 400, slo_ns=5 * MS, at_ns=1))
    rig.step()
    rig.step()
    assert rig.runs == ["A", "B", "~A"]  # stopped at 250 000, goes on at 650 000
    rig.arrive(request("C", 10, at_ns=700_000))
    rig.step()  # the first step took B's blocks back
    item = rig.scheduler._view.executing
    assert item is not None
    assert item.remaining_ns == 1_000_000 - 250_000 - 50_000


def test_a_batch_arrived_when_its_earliest_member_did() -> None:
    rig = Rig(batching=SLOAwareBatching(0.1, 1000))
    rig.arrive(request("Z", 100))
    rig.arrive(request("B", 10, slo_ns=900 * MS, at_ns=5))
    rig.arrive(request("A", 10, slo_ns=100 * MS, at_ns=9))
    rig.step()
    assert rig.runs == ["Z", "A+B"]
    item = rig.scheduler._view.executing
    assert item is not None
    assert (item.members[0].request_id, item.arrived_at_ns) == ("A", 5)
