"""How the ranks of a tensor-parallel group agree on the operator to stop before, not talking while nothing is asked.

All ranks run the same operators, and some of them (the all-reduces) end on no rank before every rank has begun them.
A rank must therefore stop where all others do, or the group hangs: `stop_at(index)`, one absolute index for all.

Words in shared memory, 64 bits each, read and written with plain loads and stores:

- `floor` and `stop`, written by rank 0: ranks at a boundary below `floor` go on; `stop` is the index agreed on.
- `passed` and `answer` of each other rank, written by that rank: the operator it runs or launches, and the boundary
  it waits at.

While nothing is asked `floor` is beyond every index: a boundary costs a rank one load and one store.

Rank 0 alone hears a pause, at a boundary c of its own. It sets `floor` = c, then looks at the others until one holds:

1. Every other rank answered with an index >= c. `stop` = the largest answer, and all go on to it.
2. A rank that has not answered passed c. Then nobody can stop at c: `floor` = c + 1, rank 0 runs operator c as well
   and asks again at its next boundary.

A rank at a boundary i >= `floor` answers i and waits for `stop`, or for a `floor` above i.

No rank runs past `stop`: a rank that answered i >= c leaves i only when it sees `stop` or a `floor` above i. Once
asked, `floor` only grows, and rank 0 counts the answer while `floor` = c <= i: so at that instant the rank is before
operator i, and i <= `stop`. A late sight of a word makes a rank answer later, or rank 0 look once more; it lets
neither conclude wrongly, so no memory fence is needed. `passed` serves case 2 only, which is safe at any time.

Nobody waits for ever: a rank waits only at an index that rank 0 has not passed. Rank 0 waits only for ranks that have
not passed c. These are below `floor` and never wait for an answer; every all-reduce they are in has been begun by
rank 0 (it passed all below c) and will be by the others (all are released up to c). On a device that works behind its
host the same holds of launching: a host that waits for its device goes on looking at the words.
"""

import time
from collections.abc import Callable, MutableSequence
from enum import Enum
from typing import Protocol

from engine.torch_backend.gate import NEVER, Gate, LaunchWindow
from engine.torch_backend.program import Operator, Program

_LINE = 8  # words of a cache line: two ranks never write to the same one
_FLOOR, _STOP = 0, 1
_PASSED, _ANSWER = 0, 1
_NOTHING = -1
LOOK_AGAIN_S = 20e-6


class AtBoundary(Enum):
    """What a rank does at a boundary."""

    GO = "go"
    STOP = "stop"
    WAIT = "wait"  # look again


class StopSide(Protocol):
    """One rank's part in the agreement, for one stretch of a task: from a start or resumption to its stop or end."""

    def look(self, index: int) -> AtBoundary:
        """What to do at this boundary, as far as the words tell now."""
        ...

    def passed(self, index: int) -> None:
        """This operator is about to run, or to be launched."""
        ...

    def finish(self) -> None:
        """The task ended on this rank, or broke."""
        ...


def words_of(ranks: int) -> int:
    """How many 64-bit words a group shares."""
    return ranks * _LINE


def look_again(index: int) -> None:  # noqa: ARG001 - for those who count how long they wait there
    """Give the processor away for a moment between two looks at the words."""
    time.sleep(LOOK_AGAIN_S)


class LeaderStop:
    """Rank 0's side. Made before the others are told to begin, after all ended their last stretch.

    words: `words_of(ranks)` integers, shared. gate: of the task that runs.
    """

    def __init__(self, words: MutableSequence[int], ranks: int, gate: Gate) -> None:
        self._words = words
        self._others = [rank * _LINE for rank in range(1, ranks)]
        self._gate = gate
        self._floor = 0
        words[_FLOOR] = words[_STOP] = NEVER
        for line in self._others:
            words[line + _PASSED] = words[line + _ANSWER] = _NOTHING

    def look(self, index: int) -> AtBoundary:
        """WAIT while a rank has come neither to this boundary nor past it."""
        if self._gate.stop_index > index or index < self._floor:
            return AtBoundary.GO
        words = self._words
        if words[_STOP] != NEVER:
            return AtBoundary.STOP if index >= words[_STOP] else AtBoundary.GO
        self._set_floor(index)
        answers = [words[line + _ANSWER] for line in self._others]
        if min(answers) >= index:
            words[_STOP] = stop = max(answers)
            return AtBoundary.STOP if index >= stop else AtBoundary.GO
        for line, answer in zip(self._others, answers, strict=True):
            if answer < index and words[line + _PASSED] >= index:
                self._set_floor(index + 1)
                return AtBoundary.GO
        return AtBoundary.WAIT

    def passed(self, index: int) -> None:
        """Nothing to tell: the others follow `floor`."""

    def finish(self) -> None:
        """Nobody is to wait for rank 0 any more."""
        self._set_floor(NEVER)

    def _set_floor(self, floor: int) -> None:
        self._floor = self._words[_FLOOR] = floor


class FollowerStop:
    """The side of another rank. words: shared with rank 0."""

    def __init__(self, words: MutableSequence[int], rank: int) -> None:
        self._words = words
        self._line = rank * _LINE

    def look(self, index: int) -> AtBoundary:
        """WAIT from the answer until rank 0's word."""
        words = self._words
        if words[_FLOOR] > index:
            return AtBoundary.GO
        stop = words[_STOP]
        if stop != NEVER:
            return AtBoundary.STOP if index >= stop else AtBoundary.GO
        words[self._line + _ANSWER] = index
        return AtBoundary.WAIT

    def passed(self, index: int) -> None:
        """For rank 0, which may be behind."""
        self._words[self._line + _PASSED] = index

    def finish(self) -> None:
        """Nothing to tell: rank 0 waits for the message that this rank ended."""


def run_in_step(
    program: Program,
    side: StopSide,
    window: LaunchWindow | None,
    predicted_ns: Callable[[Operator], int],
    wait: Callable[[int], None] = look_again,
) -> bool:
    """Go on until the end (True) or the stop agreed on (False): `Program.launch`, or without a window `Program.run`.

    wait: called between two looks, with the index waited at; may raise to give up.
    """
    found = AtBoundary.GO
    try:
        for index in range(program.cursor, len(program.operators)):
            operator = program.operators[index]
            while True:
                found = side.look(index) if operator.boundary else AtBoundary.GO
                if found is AtBoundary.STOP:
                    return False
                if found is AtBoundary.GO and (window is None or window.has_room()):
                    break
                wait(index)
            side.passed(index)
            operator.run()
            if window is not None:
                window.launched(predicted_ns(operator), operator.flops)
            program.cursor = index + 1
        return True
    finally:
        if found is not AtBoundary.STOP:
            side.finish()
        if window is not None:
            window.drain()
