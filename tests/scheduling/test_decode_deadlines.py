"""Decode steps as items with deadlines: 1000 ns a prefill token in four operators, 100 ns a decode row."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.batch import Task, TaskKind
from engine.core.commands import Start, Wake
from engine.core.request import Request
from engine.core.slo import SLO
from engine.scheduling.policies.fcfs import FCFS
from engine.scheduling.policies.non_preemptive import NonPreemptive
from engine.scheduling.scheduler import SchedulerSettings
from tests.fakes.fake_executor import FakeExecutor
from tests.scheduling.rig import SETTINGS, Rig

BY_DEADLINE = dataclasses.replace(SETTINGS, decode_order="by_deadline", decode_reserve=0.25)
TBT_NS = 40_000


def chat(name: str, seq: int = 0, max_tokens: int = 6, at_ns: int = 0, tbt_ns: int | None = TBT_NS) -> Request:
    """A short prompt, whose prefill takes 4000 ns."""
    return Request(name, seq, at_ns, 4, max_tokens, SLO(20_000, tbt_ns))


def document(seq: int = 100, tokens: int = 400, at_ns: int = 4000, slo_ns: int = 10**9) -> Request:
    """A long prompt: 400 us in operators of 100 us, unless the test makes them finer."""
    return Request("doc", seq, at_ns, tokens, 1, SLO(slo_ns))


def step_starts(rig: Rig) -> list[int]:
    return [at for at, start in rig.starts if start.task.kind is TaskKind.DECODE_STEP]


def short_operators(task: Task) -> list[int]:
    return [100 * task.new_tokens] if task.kind is TaskKind.DECODE_STEP else [1000] * task.new_tokens


class TimedRig(Rig):
    """Also notes when each task started; operators of 1000 ns."""

    def __init__(self, settings: SchedulerSettings, **more: object) -> None:

        world = FakeExecutor(
            lambda t: [100 * t.new_tokens] if t.kind is TaskKind.DECODE_STEP else [1000] * t.new_tokens
        )
        super().__init__(settings=settings, world=world, **more)  # type: ignore[arg-type]
        self.starts: list[tuple[int, Start]] = []

    def step(self) -> list:
        before = len(self.world.commands)
        events = super().step()
        now = self.world.now_ns()
        self.starts += [(now, c) for c in self.world.commands[before:] if isinstance(c, Start)]
        return events


def test_a_step_interrupts_a_prefill_at_its_reserve() -> None:
    rig = TimedRig(BY_DEADLINE)
    rig.arrive(chat("A", max_tokens=3), document())
    rig.drain()
    # First token at 4000: the second is due at 44_000. A first step is thought to take 1000 ns (its predictor's price),
    # the reserve is 10_000: urgent at 33_000, where an operator ends. It ends at 33_100, and the next is due at 73_100;
    # a step takes 100: urgent at 63_000, where no operator of the prefill ends before 63_100.
    assert step_starts(rig) == [33_000, 63_100]
    assert rig.scheduler.report().preemptions == 2
    rig.check_baseline()
    rig.check_replay()


def test_by_default_steps_wait_for_the_prefill() -> None:
    rig = TimedRig(SETTINGS)
    rig.arrive(chat("A", max_tokens=3), document())
    rig.drain()
    assert step_starts(rig) == [404_000, 404_100]
    assert not [c for c in rig.world.commands if isinstance(c, Wake)]


def test_without_prefills_steps_do_not_wait() -> None:
    rig = TimedRig(BY_DEADLINE)
    rig.arrive(chat("A", max_tokens=4))
    rig.drain()
    assert step_starts(rig) == [4000, 4100, 4200]


def test_a_prefill_due_before_the_step_comes_first() -> None:
    rig = TimedRig(BY_DEADLINE)
    rig.arrive(chat("A", max_tokens=2), document(tokens=60))
    rig.world.arrive(Request("B", 200, 30_000, 8, 1, SLO(10_000)))  # due at 40_000, the step at 44_000
    rig.drain()
    assert step_starts(rig) == [38_000]
    assert rig.runs[:4] == ["A", "doc", "B", "A"]


def test_what_can_no_longer_be_in_time_does_not_hold_back_the_others() -> None:
    rig = TimedRig(dataclasses.replace(BY_DEADLINE, decode_reserve=0.0), policy=NonPreemptive(FCFS()))
    rig.arrive(chat("A", max_tokens=2), document(tokens=100))
    rig.drain()
    # Never paused: the step follows, late, once nothing else runs.
    assert step_starts(rig) == [104_000]


def test_a_policy_that_pauses_nothing_still_orders_steps_between_tasks() -> None:
    rig = TimedRig(BY_DEADLINE, policy=NonPreemptive(FCFS()))
    rig.arrive(chat("A", max_tokens=2, tbt_ns=200_000), document(tokens=160))
    rig.world.arrive(Request("next", 300, 10_000, 50, 1, SLO(10**9)))
    rig.drain()
    # Second token due at 204_000, urgent from 153_000: at 164_000 the document ends, and A, the oldest, is first.
    assert step_starts(rig) == [164_000]


def test_without_a_tbt_slo_a_step_is_due_after_thirty_seconds() -> None:
    rig = TimedRig(BY_DEADLINE)
    rig.arrive(chat("A", max_tokens=2, tbt_ns=None), document())
    rig.drain()
    assert step_starts(rig) == [404_000]


def test_a_full_step_takes_those_that_are_due_first() -> None:
    rig = TimedRig(dataclasses.replace(BY_DEADLINE, max_decode_batch=1))
    rig.arrive(chat("A", max_tokens=2, tbt_ns=90_000), document())
    rig.world.arrive(chat("B", seq=1, max_tokens=2, at_ns=5000, tbt_ns=30_000))
    rig.drain()
    names = [s.task.sequences[0].request_id for _, s in rig.starts if s.task.kind is TaskKind.DECODE_STEP]
    assert names == ["B", "A"]


@pytest.mark.parametrize(("name", "value"), [("decode_order", "first"), ("decode_reserve", 1.5)])
def test_settings_that_cannot_be(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=name):
        dataclasses.replace(SETTINGS, **{name: value})  # type: ignore[arg-type]


@settings(max_examples=40)
@given(
    plan=st.lists(
        st.tuples(
            st.integers(1, 60),
            st.sampled_from([1, 2, 5]),
            st.sampled_from([None, 500, 20_000, 90_000]),
            st.integers(0, 4),
            st.booleans(),
        ),
        min_size=1,
        max_size=14,
    ),
    reserve=st.sampled_from([0.0, 0.25, 1.0]),
    capacity=st.sampled_from([70, 200]),
    batch=st.sampled_from([1, 3, 256]),
)
def test_whatever_comes_all_is_served_and_replays(
    plan: list[tuple[int, int, int | None, int, bool]], reserve: float, capacity: int, batch: int
) -> None:
    limits = dataclasses.replace(
        BY_DEADLINE,
        kv_blocks=20,
        activation_capacity_bytes=capacity,
        decode_reserve=reserve,
        max_decode_batch=batch,
        max_preempted=2,
    )
    rig = TimedRig(limits)
    for seq, (tokens, max_tokens, tbt_ns, steps, leaves) in enumerate(plan):
        name = f"A{seq}"
        rig.arrive(Request(name, seq, rig.world.now_ns(), tokens, max_tokens, SLO(50_000, tbt_ns)))
        for _ in range(steps):
            rig.step()
        if leaves:
            rig.cancel(name)
    rig.drain()
    report = rig.scheduler.report()
    assert report.completed_requests + report.cancelled_requests == len(plan)
    rig.check_baseline()
    rig.check_replay()
