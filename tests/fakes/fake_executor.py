"""A world in virtual time: executor, event source and clock in one. Refuses commands that break the contract.

A task is a list of operator times; it can stop between two of them. Nothing happens but through `wait`, which
jumps to the next instant at which something is due and returns all of it.
"""

import heapq
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from engine.core.batch import HAND_OVERS, Task, TaskKind
from engine.core.commands import Discard, ExecutorCommand, Pause, ReleaseKV, Resume, Start
from engine.core.events import (
    Arrival,
    Cancelled,
    Completion,
    Event,
    Failed,
    KVReleased,
    Output,
    Preempted,
    SendAsked,
    Woken,
    event_order,
)
from engine.core.request import Request

Operators = Callable[[Task], Sequence[int]]


def four_operators(task: Task) -> list[int]:
    """1000 ns a token in four equal operators; a decode step is one operator of 100 ns a row."""
    if task.kind is TaskKind.DECODE_STEP:
        return [100 * task.new_tokens]
    return [250 * task.new_tokens] * 4


def uneven_operators(task: Task) -> list[int]:
    """The same time in two layers of a long and a short operator, and one operator around them."""
    if task.kind is TaskKind.DECODE_STEP:
        return four_operators(task)
    return [part * task.new_tokens for part in (50, 300, 100, 300, 100, 150)]


@dataclass
class _Held:
    task: Task
    operators: list[int]
    fails_at: int | None
    cursor: int = 0
    resumed_at_ns: int = 0
    executed_ns: int = 0
    over: Event | None = None


class FakeExecutor:
    """operators: the times of a task's operators, in nanoseconds.

    fails_at: the operator at whose end a task breaks, None for never.
    kv_release_ns: how long released KV takes to come back.
    output_tokens: request id -> tokens after which it stops by itself (default: never before max_tokens).
    """

    def __init__(
        self,
        operators: Operators = four_operators,
        fails_at: Callable[[Task], int | None] = lambda task: None,
        kv_release_ns: int = 0,
        output_tokens: dict[str, int] | None = None,
    ) -> None:
        self._operators = operators
        self._fails_at = fails_at
        self._kv_release_ns = kv_release_ns
        self._output_tokens = output_tokens or {}
        self._time_ns = 0
        self._seq = itertools.count()
        self._due: list[tuple[tuple[int, int, int], Event]] = []
        self._withdrawn: set[int] = set()
        self._held: dict[int, _Held] = {}
        self._executing: _Held | None = None
        self._pausing = False
        self._generated: dict[str, int] = {}
        self._limits: dict[str, int] = {}
        self.kv_holders: set[str] = set()
        self.kv_releasing: set[str] = set()
        self.commands: list[ExecutorCommand] = []

    # Clock and event source.

    def now_ns(self) -> int:
        return self._time_ns

    def wait(self) -> list[Event]:
        while self._due and self._due[0][1].event_seq in self._withdrawn:
            heapq.heappop(self._due)
        if not self._due:
            return []
        self._time_ns = max(self._time_ns, self._due[0][1].at_ns)
        events: list[Event] = []
        while self._due and self._due[0][1].at_ns <= self._time_ns:
            event = heapq.heappop(self._due)[1]
            if event.event_seq not in self._withdrawn:
                events.append(self._happened(event))
        return events

    def wake_at(self, at_ns: int) -> None:
        self._put(Woken(at_ns, 0))

    def arrive(self, request: Request) -> None:
        self._limits.setdefault(request.request_id, request.max_tokens)
        self._put(Arrival(request.arrived_at_ns, 0, request))

    def ask_send(self, request_id: str, at_ns: int) -> None:
        self._put(SendAsked(at_ns, 0, request_id))

    def cancel(self, request_id: str, at_ns: int) -> None:
        self._put(Cancelled(at_ns, 0, request_id))

    # Executor.

    def submit(self, commands: Sequence[ExecutorCommand]) -> None:
        for command in commands:
            self.commands.append(command)
            match command:
                case Start(task):
                    self._start(task)
                case Resume(task_id):
                    held = self._held[task_id]
                    assert held is not self._executing
                    self._run(held)
                case Pause(task_id):
                    self._pause(task_id)
                case Discard(task_id):
                    assert self._executing is not self._held[task_id], "discarded while it executes"
                    del self._held[task_id]
                case ReleaseKV(request_id):
                    self._release(request_id)

    def _start(self, task: Task) -> None:
        assert self.kv_releasing.isdisjoint(s.request_id for s in task.sequences), "KV used again before it was free"
        assert task.task_id not in self._held
        self.kv_holders |= {s.request_id for s in task.sequences}
        if task.kind in HAND_OVERS:
            self._hand_over(task)
            return
        held = _Held(task, list(self._operators(task)), self._fails_at(task))
        self._held[task.task_id] = held
        self._run(held)

    def _hand_over(self, task: Task) -> None:
        """10 ns a token, beside whatever executes."""
        self._held[task.task_id] = _Held(task, [], self._fails_at(task))
        at_ns = self._time_ns + 10 * task.sequences[0].context_tokens
        if self._held[task.task_id].fails_at is None:
            self._put(Completion(at_ns, 0, task.task_id, 0, ()))
        else:
            self._put(Failed(at_ns, 0, task.task_id, "the hand-over broke"))

    def _run(self, held: _Held) -> None:
        assert self._executing is None, "two tasks execute"
        self._executing, self._pausing = held, False
        held.resumed_at_ns = self._time_ns
        stop = len(held.operators) if held.fails_at is None else held.fails_at + 1
        duration = sum(held.operators[held.cursor : stop])
        at_ns = self._time_ns + duration
        if held.fails_at is not None:
            held.over = self._put(Failed(at_ns, 0, held.task.task_id, "an operator broke"))
        else:
            executed = held.executed_ns + duration
            held.over = self._put(Completion(at_ns, 0, held.task.task_id, executed, ()))

    def _pause(self, task_id: int) -> None:
        held = self._executing
        assert held is not None, "a pause while nothing executes"
        assert held.task.task_id == task_id, "a pause of another task"
        assert not self._pausing, "a second pause"
        self._pausing = True
        end = held.resumed_at_ns
        cursor = held.cursor
        while end < self._time_ns or cursor == held.cursor:
            end += held.operators[cursor]
            cursor += 1
        assert held.over is not None
        if end >= held.over.at_ns:
            return  # it ends first
        self._withdrawn.add(held.over.event_seq)
        executed = held.executed_ns + end - held.resumed_at_ns
        held.over = self._put(Preempted(end, 0, task_id, executed, cursor))

    def _release(self, request_id: str) -> None:
        writers = [h for h in self._held.values() if any(s.request_id == request_id for s in h.task.sequences)]
        assert not writers, f"KV of {request_id} is released while a task may write it"
        assert request_id in self.kv_holders, f"{request_id} holds no KV"
        self.kv_holders.discard(request_id)
        self.kv_releasing.add(request_id)
        self._put(KVReleased(self._time_ns + self._kv_release_ns, 0, request_id))

    # Inside.

    def _put(self, event: Event) -> Event:
        event = replace(event, event_seq=next(self._seq))
        heapq.heappush(self._due, (event_order(event), event))
        return event

    def _happened(self, event: Event) -> Event:
        """The world's own books follow what it tells; a completion gets its outputs."""
        if isinstance(event, KVReleased):
            self.kv_releasing.discard(event.request_id)
        elif isinstance(event, Preempted):
            assert self._executing is not None
            self._executing.cursor = event.operator_index
            self._executing.executed_ns = event.executed_ns
            self._executing = None
        elif isinstance(event, Completion | Failed):
            task = self._held.pop(event.task_id).task
            if task.kind in HAND_OVERS:
                return event
            self._executing = None
            if isinstance(event, Completion):
                return replace(event, outputs=self._outputs(task))
        return event

    def _outputs(self, task: Task) -> tuple[Output, ...]:
        """Tokens count from 1; the last one says why."""
        outputs = []
        for sequence in task.sequences:
            request_id = sequence.request_id
            if not sequence.last:
                outputs.append(Output(request_id, None))
                continue
            token = self._generated[request_id] = self._generated.get(request_id, 0) + 1
            stops = token >= self._output_tokens.get(request_id, 1 << 30)
            full = token >= self._limits[request_id]
            outputs.append(Output(request_id, token, "stop" if stops else "length" if full else None))
        return tuple(outputs)
