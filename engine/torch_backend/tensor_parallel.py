"""Rank 0's side of a tensor-parallel group: it starts the other ranks, tells them its tasks, and watches them.

Heads, key heads and the MLP's inner rows are split over the ranks (`Shard`); embedding, norms and head are on each. Two
sums over the ranks per layer, in o_proj and down_proj (experts), belong to these operators. Rank 0 alone schedules and
samples: the others get a task's token ids from it, so that a seed means what it means with one rank. Every rank holds
the KV of its heads, in the same blocks.

A rank that is lost takes the group with it: nobody can go on without its part.
"""

import os
import threading
import time
from array import array
from collections.abc import Callable, MutableSequence, Sequence
from contextlib import ExitStack, suppress

from engine.core.batch import Task
from engine.torch_backend.gate import Gate, LaunchWindow
from engine.torch_backend.other_rank import LEAVE_S, OtherRank, told
from engine.torch_backend.peers import PeersLostError
from engine.torch_backend.program import Operator, Program
from engine.torch_backend.rank_link import (
    COLLECTIVE_TIMEOUT_S,
    join_group,
    leave_group,
    map_words,
    new_store,
    new_words_file,
    remove_store,
)
from engine.torch_backend.rank_messages import (
    Allocate,
    Drop,
    Ended,
    Free,
    Hello,
    Join,
    Leave,
    ModelChoice,
    Plan,
    Ready,
    Run,
    ToRank,
)
from engine.torch_backend.rank_stop import LeaderStop, look_again, run_in_step
from engine.torch_backend.settings import ExecutorSettings

ALONE_S = 15.0
"""How long one rank's failure waits for the others to fail likewise, before it counts as that rank's alone: on a busy
machine they may be seconds apart, and the group ends with it.
"""


class RankGroup:
    """The other ranks (`engine.torch_backend.peers.Peers`). Made by `launch`; `wait_ready` comes before any task.

    on_lost: told once, with a sentence, that the group is broken; from any thread. The engine must end then.
    """

    def __init__(self, ranks: int, on_lost: Callable[[str], None]) -> None:
        self.ranks = ranks
        self._on_lost = on_lost
        self._held = ExitStack()
        self._others: list[OtherRank] = []
        self._words: MutableSequence[int] = []
        self._store = ""
        self._sending = threading.Lock()
        self._changed = threading.Condition()
        self._broken = ""
        self._closed = False
        self._stretch = 0  # number of the present one; 0 = none runs
        self._stretches = 0
        self._waits = (-1, 0.0)  # the operator rank 0 waits at, and since when

    @staticmethod
    def launch(
        ranks: int,
        model: ModelChoice,
        executor: ExecutorSettings,
        on_lost: Callable[[str], None],
        first_cpu: int | None = None,
    ) -> "RankGroup":
        """Start the ranks and join them. They load their parts meanwhile.

        first_cpu: rank r runs on CPU first_cpu + r; None: wherever. Raises RankStartError.
        """
        group = RankGroup(ranks, on_lost)
        try:
            group._start(model, executor, first_cpu)
        except BaseException:
            group._closed = True
            group._end_processes(0.0)
            group._held.close()
            raise
        return group

    def _start(self, model: ModelChoice, executor: ExecutorSettings, first_cpu: int | None) -> None:
        words = new_words_file()
        self._held.callback(os.close, words)
        self._words = map_words(words, self.ranks)
        self._store = store = new_store()
        self._held.callback(remove_store, store)
        for number in range(1, self.ranks):
            rank = OtherRank.start(number, words, None if first_cpu is None else first_cpu + number)
            self._others.append(rank)
            rank.connection.send(Join(number, self.ranks, store, model, executor))
        for rank in self._others:
            rank.expect(Hello)
        join_group(model.device, 0, self.ranks, store)
        self._held.callback(leave_group)

    def wait_ready(self) -> None:
        """Until every rank has loaded its part. Raises RankStartError with its reason."""
        for rank in self._others:
            rank.expect(Ready)
        for rank in self._others:
            threading.Thread(target=self._watch, args=(rank,), name=f"rank-{rank.number}", daemon=True).start()

    def close(self) -> None:
        """End the ranks, by message, after a while by force. No task may run."""
        self._closed = True
        self._send(Leave())
        self._end_processes(LEAVE_S)
        self._held.close()

    # Peers, as the executor tells.

    def allocate(self, request_id: str, tokens: int) -> None:
        """Every rank gives the request blocks."""
        self._send(Allocate(request_id, tokens))

    def free(self, request_id: str) -> None:
        """Every rank takes them back, once it has stopped or ended what it runs now."""
        self._send(Free(request_id))

    def plan(self, task: Task, token_ids: Sequence[int]) -> None:
        """Every rank plans the task, while rank 0 does."""
        self._send(Plan(task, array("i", token_ids)))

    def drop(self, task_id: int) -> None:
        """Every rank forgets the task."""
        self._send(Drop(task_id))

    def run(
        self,
        task_id: int,
        program: Program,
        gate: Gate,
        window: LaunchWindow | None,
        predicted_ns: Callable[[Operator], int],
    ) -> bool:
        """One stretch on all ranks. Raises what broke on every rank alike; PeersLostError for anything else."""
        if self._broken:
            raise PeersLostError(self._broken)
        side = LeaderStop(self._words, self.ranks, gate)
        with self._changed:
            for rank in self._others:
                rank.ended = None
            self._waits = -1, 0.0
            self._stretches += 1
            self._stretch = self._stretches
        self._send(Run(task_id))
        try:
            finished = run_in_step(program, side, window, predicted_ns, self._wait)
        except Exception as error:
            self._agree(program.cursor, error)  # it may have come from a lost rank
            raise
        self._agree(program.cursor, None)
        return finished

    def _wait(self, index: int) -> None:
        if self._broken:
            raise PeersLostError(self._broken)
        at, since_s = self._waits
        if at != index:
            self._waits = index, time.monotonic()
        elif time.monotonic() - since_s > COLLECTIVE_TIMEOUT_S:
            reason = f"a rank has not come to operator {index} for {COLLECTIVE_TIMEOUT_S} s, where rank 0 waits"
            raise PeersLostError(self._break(reason))
        look_again(index)

    def _agree(self, cursor: int, failure: Exception | None) -> None:
        """Wait for all ranks' ends; they must be as rank 0's."""
        longest_s = COLLECTIVE_TIMEOUT_S if failure is None else ALONE_S
        with self._changed:
            self._changed.wait_for(
                lambda: self._broken or all(rank.ended is not None for rank in self._others), longest_s
            )
            self._stretch = 0
            broken = self._broken
            ends = {rank.number: rank.ended for rank in self._others}
        if broken:
            raise PeersLostError(broken)
        for number, ended in ends.items():
            if ended is None or ended.cursor != cursor or (ended.failure is None) != (failure is None):
                here = f"at operator {cursor}" + (f" ({type(failure).__name__}: {failure})" if failure else "")
                raise PeersLostError(self._break(f"rank {number} {told(ended)}, rank 0 is {here}"))

    # The processes.

    def _send(self, message: ToRank) -> None:
        with self._sending, suppress(OSError):  # a rank that is gone is told of by its watcher
            for rank in self._others:
                rank.connection.send(message)

    def _watch(self, rank: OtherRank) -> None:
        try:
            while isinstance(answer := rank.connection.recv(), Ended):
                with self._changed:
                    rank.ended = answer
                    self._changed.notify_all()
                if answer.failure is not None:
                    timer = threading.Timer(ALONE_S, self._still_running, (rank, answer, self._stretch))
                    timer.daemon = True
                    timer.start()
        except (EOFError, OSError):
            if not self._closed:
                self._break(f"rank {rank.number} of {self.ranks} {rank.how_ended()}")

    def _still_running(self, rank: OtherRank, ended: Ended, stretch: int) -> None:
        # Rank 0 may sit in a sum that the failed rank will never join.
        if self._stretch == stretch != 0:
            self._break(f"rank {rank.number} of {self.ranks} {told(ended)}, and the others go on")

    def _break(self, reason: str) -> str:
        with self._changed:
            if self._broken:
                return self._broken
            self._broken = reason
            self._changed.notify_all()
        for rank in self._others:
            rank.process.kill()
        remove_store(self._store)  # the engine may end without closing
        self._on_lost(reason)
        return reason

    def _end_processes(self, longest_s: float) -> None:
        for rank in self._others:
            rank.end(longest_s)
