"""Aborts in every state: nothing of the request stays, and what runs next is not held up."""

import random

import pytest

from engine.core.batch import Sequence
from engine.core.commands import Discard, Pause, ReleaseKV, Resume
from engine.core.events import Completion, KVReleased, Preempted
from engine.model.granularity import Granularity
from engine.torch_backend.models.llama import Llama
from tests.torch_backend.engine_run import prompt
from tests.torch_backend.executor_rig import HeldOperator, Rig, decode, prefill

BLOCKS = 64


class Aborting(Rig):
    """One method for each state a request can be in when its client leaves."""

    def __init__(self, model: Llama, granularity: Granularity, seed: int) -> None:
        super().__init__(model, granularity, BLOCKS)
        self.draw = random.Random(seed)
        self.number = 0

    def new(self) -> tuple[str, int]:
        self.number += 1
        name, length = f"r{self.number}", self.draw.randint(1, 40)
        self.register(name, prompt(length, seed=self.number), max_tokens=3, ignore_eos=True)
        return name, length

    def release(self, name: str) -> None:
        self.executor.submit([ReleaseKV(name)])
        self.executor.forget(name)

    def expect_released(self, name: str) -> None:
        event = self.event()
        assert isinstance(event, KVReleased)
        assert event.request_id == name

    def linger(self) -> None:
        for _ in range(self.draw.randint(0, 4000)):
            pass

    def waiting_request(self) -> None:
        name, _ = self.new()
        self.release(name)
        self.expect_released(name)

    def executing(self) -> None:
        name, length = self.new()
        self.executor.submit([prefill(self.number, Sequence(name, 0, length))])
        self.linger()
        self.executor.submit([Pause(self.number)])
        if isinstance(self.event(), Preempted):
            self.executor.submit([Discard(self.number)])
        self.release(name)
        self.expect_released(name)

    def executing_and_left_to_finish(self) -> None:
        name, length = self.new()
        self.executor.submit([prefill(self.number, Sequence(name, 0, length))])
        self.linger()
        self.release(name)
        assert isinstance(self.event(), Completion)
        self.expect_released(name)

    def discarded_while_executing(self) -> None:
        name, length = self.new()
        self.executor.submit([prefill(self.number, Sequence(name, 0, length))])
        self.linger()
        self.executor.submit([Pause(self.number), Discard(self.number), ReleaseKV(name)])
        self.executor.forget(name)
        seen = [type(self.event()), type(self.event())]
        assert seen in ([Preempted, KVReleased], [Completion, KVReleased])

    def preempted(self) -> None:
        name, length = self.new()
        task = self.number
        self.executor.submit([prefill(task, Sequence(name, 0, length)), Pause(task)])
        if isinstance(self.event(), Preempted):
            self.executing()
            self.executor.submit([Discard(task)])
        self.release(name)
        self.expect_released(name)

    def member_of_a_batch(self) -> None:
        (one, one_length), (other, other_length) = self.new(), self.new()
        task = self.number
        self.executor.submit([prefill(task, Sequence(one, 0, one_length), Sequence(other, 0, other_length))])
        self.linger()
        self.release(one)
        self.executor.submit([Pause(task)])
        if isinstance(event := self.event(), Preempted):
            assert one in self.executor.cache.holders
            self.executor.submit([Resume(task)])
            event = self.event()
        if isinstance(event, KVReleased):  # the task was over before its member left
            assert isinstance(self.event(), Completion)
        else:
            assert isinstance(event, Completion)
            self.expect_released(one)
        self.release(other)
        self.expect_released(other)

    def last_step(self) -> None:
        name, length = self.new()
        self.executor.submit([prefill(self.number, Sequence(name, 0, length))])
        assert isinstance(self.event(), Completion)
        self.executor.submit([decode(10_000 + self.number, Sequence(name, length, 1))])
        self.linger()
        self.release(name)
        assert {type(self.event()), type(self.event())} == {Completion, KVReleased}


@pytest.mark.parametrize("granularity", [Granularity.OPERATOR, Granularity.TILE])
def test_e09_500_aborts_in_random_states_leave_nothing_behind(tiny: Llama, granularity: Granularity) -> None:
    rig = Aborting(tiny, granularity, seed=3)
    states = [
        rig.waiting_request, rig.executing, rig.executing_and_left_to_finish, rig.discarded_while_executing,
        rig.preempted, rig.member_of_a_batch, rig.last_step,
    ]  # fmt: skip
    for _ in range(250):
        rig.draw.choice(states)()
        assert rig.executor.cache.free_blocks == BLOCKS
        assert (rig.executor._held, rig.executor._requests, rig.executor._release_later) == ({}, {}, set())
        rig.executor.check()
    rig.executor.close()
    assert rig.waiting == []


def test_e08_an_aborted_prefill_stops_at_the_next_operator(tiny: Llama, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(tiny)
    held = HeldOperator(monkeypatch, tiny, "qkv_proj")
    rig.register("left", prompt(300))
    rig.register("next", prompt(10))
    rig.executor.submit([prefill(1, Sequence("left", 0, 300))])
    assert held.reached.wait(120)
    rig.executor.submit([Pause(1)])
    held.go.set()
    event = rig.event()
    assert isinstance(event, Preempted)
    assert event.operator_index == 2  # embedding and the operator that was under way
    rig.executor.submit([Discard(1), ReleaseKV("left"), prefill(2, Sequence("next", 0, 10))])
    assert isinstance(rig.event(), KVReleased)
    assert isinstance(rig.event(), Completion)
    rig.executor.close()
