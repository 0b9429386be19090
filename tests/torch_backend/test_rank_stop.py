"""The stop agreement under thousands of interleavings, with words that others see late."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from engine.model.granularity import Granularity, is_boundary
from engine.torch_backend.gate import Gate, LaunchWindow
from engine.torch_backend.program import Operator, Program
from engine.torch_backend.rank_stop import AtBoundary, FollowerStop, LeaderStop, StopSide, run_in_step, words_of

LAYERS = 3
KINDS = ["embedding", *["qkv_proj", "attention", "o_proj", "gate_up_proj", "down_proj"] * LAYERS, "head"]
SUMS = ("o_proj", "down_proj")
MOST_STEPS = 20_000


class Memory:
    """Words whose readers may see old values, but never one older than they saw before."""

    def __init__(self, ranks: int, chance: random.Random) -> None:
        self.history: list[list[int]] = [[0] for _ in range(words_of(ranks))]
        self.chance = chance

    def settle(self) -> None:
        """All see the newest, as after a message."""
        self.history = [[values[-1]] for values in self.history]


class Sight(list[int]):
    """One rank's sight of the memory."""

    def __init__(self, memory: Memory) -> None:
        super().__init__()
        self.memory = memory
        self.seen = [0] * len(memory.history)

    def __getitem__(self, index: Any) -> Any:
        values = self.memory.history[index]
        newest = len(values) - 1
        if self.memory.chance.random() < 0.5:
            newest = self.memory.chance.randint(self.seen[index], newest)
        self.seen[index] = newest
        return values[newest]

    def __setitem__(self, index: Any, value: Any) -> None:
        self.memory.history[index].append(value)
        self.seen[index] = len(self.memory.history[index]) - 1


class Group:
    """Ranks that run one program side by side. ahead: how many operators a host launches before its device is done."""

    def __init__(self, chance: random.Random, ranks: int, granularity: Granularity, ahead: int) -> None:
        self.boundary = [is_boundary(granularity, kind) for kind in KINDS]
        self.ahead = ahead
        self.next = [0] * ranks  # operator each host comes to next
        self.chance = chance
        self.memory = Memory(ranks, chance)

    def done(self, rank: int) -> int:
        """How many operators this rank's device has finished: sums wait for all ranks."""
        for index in range(self.next[rank]):
            if KINDS[index] in SUMS and min(self.next) <= index:
                return index
        return self.next[rank]

    def stretch(self, gate: Gate, asked_at_step: int) -> bool:
        """Until all ended (True) or stopped (False); they must agree."""
        self.memory.settle()
        sights = [Sight(self.memory) for _ in self.next]
        sides: list[StopSide] = [LeaderStop(sights[0], len(sights), gate)]
        self.memory.settle()
        for sight in sights:
            sight.seen = [0] * len(sight.seen)
        sides += [FollowerStop(sight, rank) for rank, sight in enumerate(sights) if rank]
        moving = {rank: self._rank(rank, sides[rank]) for rank in range(len(sides))}
        ends: list[bool] = []
        speed = [self.chance.choice((1, 1, 5, 40)) for _ in sides]
        for step in range(MOST_STEPS):
            if step == asked_at_step:
                gate.stop_at(0, 0)
            if not moving:
                break
            rank = self.chance.choices(list(moving), [speed[rank] for rank in moving])[0]
            if (ended := next(moving[rank])) is not None:
                ends.append(ended)
                del moving[rank]
        assert not moving, "the ranks wait for each other"
        assert len(set(ends)) == 1
        assert len(set(self.next)) == 1
        return ends[0]

    def _rank(self, rank: int, side: StopSide) -> Iterator[bool | None]:
        while self.next[rank] < len(KINDS):
            index = self.next[rank]
            found = side.look(index) if self.boundary[index] else AtBoundary.GO
            yield None
            if found is AtBoundary.STOP:
                yield False
            if found is AtBoundary.GO and index - self.done(rank) <= self.ahead:
                side.passed(index)
                yield None
                self.next[rank] = index + 1
                while not self.ahead and self.done(rank) <= index:
                    yield None
        side.finish()
        yield True


@pytest.mark.parametrize("ahead", [0, 2, 9])
@pytest.mark.parametrize("granularity", [Granularity.OPERATOR, Granularity.HALF_LAYER, Granularity.LAYER])
def test_all_ranks_stop_before_one_operator_whatever_the_order(granularity: Granularity, ahead: int) -> None:
    stops = set()
    for seed in range(60):
        chance = random.Random(seed)
        group = Group(chance, chance.randint(2, 4), granularity, ahead)
        for _ in range(4):
            if group.stretch(Gate(), chance.randint(0, 100)):
                break
            assert group.boundary[group.next[0]]
            stops.add(group.next[0])
        else:
            assert group.stretch(Gate(), MOST_STEPS)
    if granularity is Granularity.OPERATOR:
        assert len(stops) >= len(KINDS) // 2


def test_level_ranks_stop_where_rank_0_hears_the_pause() -> None:
    words, gate = [0] * words_of(2), Gate()
    leader, follower = LeaderStop(words, 2, gate), FollowerStop(words, 1)
    assert leader.look(0) is follower.look(0) is AtBoundary.GO
    follower.passed(0)
    gate.stop_at(0, 0)
    assert leader.look(1) is AtBoundary.WAIT
    assert follower.look(1) is AtBoundary.WAIT
    assert leader.look(1) is follower.look(1) is AtBoundary.STOP


def test_rank_0_catches_up_with_a_rank_that_is_ahead() -> None:
    words, gate = [0] * words_of(2), Gate()
    leader, follower = LeaderStop(words, 2, gate), FollowerStop(words, 1)
    follower.passed(3)
    gate.stop_at(0, 0)
    assert [leader.look(index) for index in range(4)] == [AtBoundary.GO] * 4
    assert follower.look(4) is AtBoundary.WAIT
    assert leader.look(4) is follower.look(4) is AtBoundary.STOP


class Landing:
    """An event of a device that is done once it was asked three times."""

    def __init__(self) -> None:
        self.asked = 0

    def record(self) -> None: ...

    def synchronize(self) -> None:
        self.asked = 3

    def query(self) -> bool:
        self.asked += 1
        return self.asked > 3


@pytest.mark.parametrize("launched", [False, True])
def test_a_program_stops_goes_on_and_ends(launched: bool) -> None:
    ran: list[int] = []
    operators = [Operator(kind, lambda i=i: ran.append(i), True, 1) for i, kind in enumerate(KINDS)]  # type: ignore[misc]
    program = Program(operators, None)  # type: ignore[arg-type]
    words, gate = [0] * words_of(2), Gate()

    def run(side: StopSide) -> bool:
        return run_in_step(program, side, LaunchWindow(1, Landing) if launched else None, lambda _: 1, lambda _: None)

    leader, follower = LeaderStop(words, 2, gate), FollowerStop(words, 1)
    gate.stop_at(7, 0)
    follower.look(0)
    words[0] = 7  # as rank 0 will ask; the follower waits at 9
    assert follower.look(9) is AtBoundary.WAIT
    assert not run(leader)
    assert (program.cursor, ran) == (9, list(range(9)))
    gate.open()
    assert run(LeaderStop(words, 2, gate))
    assert ran == list(range(len(KINDS)))
    assert FollowerStop(words, 1).look(0) is AtBoundary.GO


def test_who_gives_up_waiting_lets_the_others_go_on() -> None:
    words, gate = [0] * words_of(2), Gate()
    program = Program([Operator("embedding", lambda: None, True, 1)], None)  # type: ignore[arg-type]
    gate.stop_at(0, 0)

    def give_up(index: int) -> None:
        assert index == 0
        assert FollowerStop(words, 1).look(0) is AtBoundary.WAIT
        raise InterruptedError

    with pytest.raises(InterruptedError):
        run_in_step(program, LeaderStop(words, 2, gate), None, lambda _: 1, give_up)
    assert FollowerStop(words, 1).look(0) is AtBoundary.GO
