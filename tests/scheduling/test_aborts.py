"""Clients leave in every state."""

import pytest

from baselines.policies.chunked_prefill import ChunkBatching
from baselines.policies.request_restart import RequestRestart
from engine.core.commands import Discard, Pause, ReleaseKV, Start
from engine.core.events import Cancelled
from engine.core.ports import ItemState
from engine.scheduling.batching import SLOAwareBatching
from engine.scheduling.policies.non_preemptive import NonPreemptive
from engine.scheduling.policies.s_edf import SlackEDF
from engine.scheduling.scheduler import SchedulerSettings
from tests.fakes.fake_executor import FakeExecutor
from tests.scheduling.rig import MS, Rig, request


def batch_of_three(rig: Rig) -> None:
    """Z executes; A, B, C wait, and then execute as one batch."""
    rig.arrive(request("Z", 100))
    rig.arrive(request("A", 10), request("B", 20), request("C", 30))
    rig.step()
    assert rig.runs == ["Z", "A+B+C"]


def commands_of(rig: Rig, kind: type) -> list[object]:
    return [command for command in rig.world.commands if isinstance(command, kind)]


@pytest.fixture
def batched() -> Rig:
    rig = Rig(batching=SLOAwareBatching(0.1, 1000))
    batch_of_three(rig)
    return rig


def test_waiting() -> None:
    rig = Rig()
    rig.arrive(request("A", 100))
    rig.arrive(request("B", 100, at_ns=1))
    rig.cancel("B")
    rig.drain()
    assert rig.runs == ["A"]
    assert commands_of(rig, ReleaseKV) == [ReleaseKV("A")]
    assert rig.scheduler.report().cancelled_requests == 1
    rig.check_baseline()


def test_a_waiting_continuation_gives_its_kv_back_at_once() -> None:

    rig = Rig(NonPreemptive(SlackEDF()), ChunkBatching(50))
    rig.arrive(request("A", 150, slo_ns=900 * MS))
    rig.arrive(request("B", 50, slo_ns=100 * MS, at_ns=1))
    rig.step()
    assert rig.runs == ["A", "B"]
    rig.cancel("A")
    assert commands_of(rig, ReleaseKV) == [ReleaseKV("A")]
    rig.drain()
    assert rig.runs == ["A", "B"]
    rig.check_baseline()


def test_a_member_of_an_executing_batch_keeps_its_kv_until_the_batch_is_over(batched: Rig) -> None:
    batched.cancel("B")
    assert commands_of(batched, Pause) == []
    assert ReleaseKV("B") not in batched.world.commands
    item = batched.scheduler._view.executing
    assert item is not None
    assert [member.request_id for member in item.members] == ["A", "C"]
    batched.step()
    assert [c.request_id for c in commands_of(batched, ReleaseKV)] == ["Z", "A", "B", "C"]
    batched.drain()
    assert batched.scheduler.report().completed_requests == 3
    assert batched.scheduler.report().cancelled_requests == 1
    batched.check_baseline()


def test_the_first_member_leaves_and_the_batch_is_known_by_the_next(batched: Rig) -> None:
    batched.cancel("A")
    item = batched.scheduler._view.executing
    assert item is not None
    assert (item.key, item.members[0].request_id) == (1000, "B")
    batched.drain()
    batched.check_baseline()


def test_e08_the_last_member_leaves_and_the_task_stops_at_the_next_operator(batched: Rig) -> None:
    for name in "ABC":
        batched.cancel(name)
    assert commands_of(batched, Pause) == [Pause(1)]
    assert commands_of(batched, Discard) == []
    assert batched.scheduler._view.executing is None
    (stopped,) = (event for event in batched.step() if type(event).__name__ == "Preempted")
    assert stopped.at_ns == 100_000 + 15_000  # the end of the first of four operators of 15 000 ns
    assert commands_of(batched, Discard) == [Discard(1)]
    assert {c.request_id for c in commands_of(batched, ReleaseKV)} == {"A", "B", "C", "Z"}
    report = batched.scheduler.report()
    assert (report.preemptions, report.blocking_ns) == (0, ())  # nobody waited for this stop
    batched.drain()
    batched.check_baseline()


def test_it_is_stopped_even_where_nothing_is_preempted() -> None:
    rig = Rig(NonPreemptive(SlackEDF()))
    rig.arrive(request("A", 1000))
    rig.arrive(request("B", 10, at_ns=1))
    rig.cancel("A")
    assert commands_of(rig, Pause) == [Pause(0)]
    rig.drain()
    assert rig.runs == ["A", "B"]
    assert rig.world.now_ns() == 250_000 + 10_000


def test_the_last_member_leaves_in_the_last_operator() -> None:
    rig = Rig()
    rig.arrive(request("A", 1000))
    rig.world.cancel("A", 900_000)
    rig.drain()
    assert commands_of(rig, Pause) == [Pause(0)]
    assert commands_of(rig, Discard) == []  # Completion answered the pause
    assert rig.scheduler.report().completed_requests == 0
    rig.check_baseline()


def test_everybody_leaves_while_a_pause_for_other_work_is_outstanding() -> None:
    rig = Rig()
    rig.arrive(request("A", 1000))
    rig.arrive(request("B", 10, slo_ns=MS, at_ns=1))
    rig.cancel("A")
    assert commands_of(rig, Pause) == [Pause(0)]
    rig.drain()
    assert commands_of(rig, Discard) == [Discard(0)]
    assert rig.runs == ["A", "B"]
    rig.check_baseline()


def test_a_preempted_task_is_discarded_when_its_last_member_leaves_and_not_before() -> None:
    rig = Rig(batching=SLOAwareBatching(0.1, 1000))
    batch_of_three(rig)
    rig.world.arrive(request("D", 200, slo_ns=MS, at_ns=rig.world.now_ns() + 1))
    while rig.runs[-1] != "D":
        assert rig.step()
    rig.cancel("A")
    rig.cancel("C")
    assert commands_of(rig, Discard) == []
    assert ReleaseKV("A") not in rig.world.commands  # the batch will write A's rows too when it goes on
    (item,) = (each for each in rig.scheduler._view.items if each.state is ItemState.PREEMPTED)
    assert [member.request_id for member in item.members] == ["B"]
    rig.cancel("B")
    assert commands_of(rig, Discard) == [Discard(1)]
    assert {"A", "B", "C"} <= {c.request_id for c in commands_of(rig, ReleaseKV)}
    rig.drain()
    rig.check_baseline()


def test_decoding_between_and_in_a_step() -> None:
    rig = Rig()
    rig.arrive(request("A", 10, max_tokens=5), request("B", 10, max_tokens=5), request("C", 1000))
    rig.step()
    rig.step()
    assert rig.runs == ["A", "B", "C"]  # A and B have their first token, C's prefill goes before their steps
    rig.cancel("A")
    assert commands_of(rig, ReleaseKV) == [ReleaseKV("A")]
    rig.step()
    rig.step()
    assert rig.runs[-1] == "B"
    rig.cancel("B")  # in a step: freed when the step is over
    assert ReleaseKV("B") not in rig.world.commands
    rig.step()
    assert ReleaseKV("B") in rig.world.commands
    rig.drain()
    rig.check_baseline()


def test_unknown_and_finished_ids_are_ignored() -> None:
    rig = Rig()
    rig.cancel("nobody")
    rig.arrive(request("A", 10))
    rig.drain()
    rig.cancel("A")
    assert rig.scheduler.report().cancelled_requests == 0
    rig.check_baseline()


def test_leaving_twice_counts_once() -> None:
    rig = Rig()
    rig.arrive(request("A", 10))
    rig.cancel("A")
    rig.cancel("A")
    rig.drain()
    assert rig.scheduler.report().cancelled_requests == 1
    rig.check_baseline()


def test_leaving_while_a_restart_waits_for_its_blocks() -> None:

    rig = Rig(RequestRestart(SlackEDF()), world=FakeExecutor(kv_release_ns=90_000))
    rig.arrive(request("A", 100))
    rig.arrive(request("B", 10, slo_ns=MS, at_ns=1))
    rig.step()
    rig.cancel("A")
    assert commands_of(rig, ReleaseKV) == [ReleaseKV("A")]  # not asked for again
    rig.drain()
    rig.check_baseline()


def test_arrival_and_abort_at_one_instant() -> None:
    """At one instant an abort is taken before an arrival: the id is not known yet, so the request runs."""
    rig = Rig()
    rig.world.arrive(request("A", 10))
    rig.world.cancel("A", 0)
    rig.drain()
    assert rig.runs == ["A"]


def test_the_batch_deadline_is_made_anew_when_members_leave() -> None:
    def due_of_executing(rule: str, *leavers: str) -> int:
        limits = SchedulerSettings(1000, 16, 1 << 30, 10_000, batch_deadline=rule)  # type: ignore[arg-type]
        rig = Rig(batching=SLOAwareBatching(0.1, 1000), settings=limits)
        rig.arrive(request("Z", 10))
        rig.arrive(
            request("A", 10, slo_ns=500 * MS), request("B", 10, slo_ns=600 * MS), request("C", 10, slo_ns=700 * MS)
        )
        rig.step()
        for name in leavers:
            rig.scheduler.handle([Cancelled(rig.world.now_ns(), 0, name)], rig.world.now_ns())
        item = rig.scheduler._view.executing
        assert item is not None
        return item.due_at_ns

    for rule in ("head", "earliest_live"):
        assert due_of_executing(rule) == 500 * MS
        assert due_of_executing(rule, "A") == 600 * MS
        assert due_of_executing(rule, "B") == 500 * MS
        assert due_of_executing(rule, "B", "A") == 700 * MS


def test_starts_name_only_live_requests() -> None:
    rig = Rig(batching=SLOAwareBatching(0.1, 1000))
    rig.arrive(request("A", 100))
    rig.arrive(request("B", 10, at_ns=1), request("C", 10, at_ns=1))
    rig.cancel("B")
    rig.drain()
    assert [s.request_id for c in commands_of(rig, Start) for s in c.task.sequences] == ["A", "C"]  # type: ignore[attr-defined]
