"""What is counted."""

import dataclasses

from engine.core.events import Cancelled
from engine.core.record import EngineReport
from engine.scheduling.counters import Counters
from tests.fakes.fake_executor import FakeExecutor
from tests.scheduling.rig import MS, Rig, request


def test_every_field_of_the_report_is_counted() -> None:
    counted = {field.name for field in dataclasses.fields(Counters)} | {"predictions_clamped"}
    assert counted == {field.name for field in dataclasses.fields(EngineReport)}


def test_a_run_by_hand() -> None:
    """A (1000 tokens) is preempted by B (10, 3 to generate) at 250 000; C leaves while it waits; D is too long."""
    rig = Rig(world=FakeExecutor(kv_release_ns=5))
    rig.arrive(request("A", 1000))
    rig.arrive(request("B", 10, slo_ns=5 * MS, at_ns=100_000, max_tokens=3))
    rig.arrive(request("C", 20, at_ns=100_010), request("D", 1 << 20, at_ns=100_010))
    rig.cancel("C")
    rig.drain()
    report = rig.scheduler.report()
    assert report.preemptions == 1
    assert report.blocking_ns == (150_000,)
    assert (report.completed_requests, report.cancelled_requests, report.failed_requests, report.rejected) == (
        2,
        1,
        0,
        1,
    )
    assert (report.prefill_tokens, report.decode_tokens) == (1010, 2)
    assert report.executed_ns == 1_010_000 + 200
    # A and B at once; C left before the pause ended, when the next decision was made. D was refused at once.
    assert report.arrival_to_decision_ns == (0, 0, 250_000 - 100_010)
    # Arrivals of A and B, the pause's end with the arrival of C, the ends of B's prefill, of A and of two steps.
    assert report.decisions == 7
    rig.scheduler.add_scheduling_ns(17)
    assert rig.scheduler.report().scheduling_ns == 17
    rig.scheduler.reset_report()
    assert rig.scheduler.report() == EngineReport()


def test_a_failed_task_fails_its_members_and_nobody_else() -> None:
    rig = Rig(world=FakeExecutor(fails_at=lambda task: 1 if task.task_id == 0 else None))
    rig.arrive(request("A", 1000))
    rig.arrive(request("B", 10, at_ns=1))
    rig.drain()
    assert rig.sink.failures == {"A": "an operator broke"}
    assert rig.runs == ["A", "B"]
    report = rig.scheduler.report()
    assert (report.failed_requests, report.completed_requests) == (1, 1)
    assert report.executed_ns == 500_000 + 10_000
    assert report.other_decisions == 1
    rig.check_baseline()


def test_a_failed_decode_step_fails_its_members() -> None:
    rig = Rig(world=FakeExecutor(fails_at=lambda task: 0 if task.task_id == 1 else None))
    rig.arrive(request("A", 10, max_tokens=3))
    rig.drain()
    assert rig.sink.failures == {"A": "an operator broke"}
    rig.check_baseline()


def test_failure_may_answer_a_pause() -> None:
    rig = Rig(world=FakeExecutor(fails_at=lambda task: 0 if task.task_id == 0 else None))
    rig.arrive(request("A", 1000))
    rig.arrive(request("B", 10, slo_ns=5 * MS, at_ns=50_000))
    rig.drain()
    assert rig.scheduler.report().blocking_ns == (200_000,)
    assert rig.runs == ["A", "B"]


def test_what_changes_nothing_leads_to_no_decision() -> None:
    rig = Rig()
    rig.arrive(request("A", 1000))
    rig.arrive(request("B", 10, at_ns=1))
    before = rig.scheduler.report()
    rig.cancel("B")
    rig.cancel("nobody")
    assert rig.scheduler.handle([], rig.world.now_ns()) == []
    after = rig.scheduler.report()
    assert (after.decisions, after.other_decisions) == (before.decisions, before.other_decisions)


def test_events_of_one_call_are_all_taken_before_the_one_decision() -> None:
    rig = Rig()
    rig.arrive(request("A", 100))
    # Completion of A and both arrivals fall on one instant; C, the more urgent, starts.
    rig.arrive(request("B", 10, slo_ns=900 * MS, at_ns=100_000), request("C", 10, slo_ns=100 * MS, at_ns=100_000))
    assert rig.runs == ["A", "C"]
    assert rig.scheduler.report().decisions == 2


def test_live_counts_by_state() -> None:
    rig = Rig()
    rig.arrive(request("A", 1000))
    rig.arrive(request("B", 500, slo_ns=5 * MS, at_ns=1), request("C", 10, at_ns=1))
    rig.step()
    live = rig.scheduler.live
    assert (live.waiting, live.executing, live.preempted, live.decoding) == (1, 1, 1, 0)
    assert rig.scheduler.activation_held_bytes == 1500
    rig.scheduler.handle([Cancelled(rig.world.now_ns(), 0, "A")], rig.world.now_ns())
    assert rig.scheduler.live.preempted == 0
    assert rig.scheduler.activation_held_bytes == 500


def test_events_are_taken_in_their_order_however_they_are_given() -> None:
    rig = Rig()
    rig.arrive(request("A", 100))
    rig.world.arrive(request("B", 10, at_ns=100_000))
    rig.world.cancel("A", 100_000)
    events = rig.world.wait()
    assert len(events) == 3
    # A is done before its client leaves: completed, not cancelled, and B starts at once.
    commands = rig.scheduler.handle(events[::-1], rig.world.now_ns())
    assert [type(command).__name__ for command in commands] == ["ReleaseKV", "Start"]
    assert rig.scheduler.report().cancelled_requests == 0
