"""The execution pool: one executing task on a thread of its own, and the preempted ones."""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from engine.core.batch import HAND_OVERS, Task, TaskKind
from engine.core.clock import Clock
from engine.core.commands import Command, Discard, Pause, ReleaseKV, Resume, Start
from engine.core.events import Completion, Event, Failed, KVReleased, Output, Preempted
from engine.model.activation import activation_bytes
from engine.model.segments import segments_of
from engine.torch_backend.gate import Gate
from engine.torch_backend.kv_cache import KVCache, KVExhaustedError
from engine.torch_backend.kv_handovers import KVHandOvers
from engine.torch_backend.kv_transport import KVTransport
from engine.torch_backend.models.decoder import Decoder
from engine.torch_backend.operator_times import OperatorTimes
from engine.torch_backend.payload import LiveRequest, Payload
from engine.torch_backend.peers import Nobody, Peers
from engine.torch_backend.program import Program, plan_program
from engine.torch_backend.settings import ExecutorSettings, new_window
from engine.torch_backend.task_state import build_state

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Held:
    """A task that was started and is not over. program: None until its first operator is about to run."""

    task: Task
    requests: dict[str, LiveRequest]
    gate: Gate = field(default_factory=Gate)
    program: Program | None = None
    executed_ns: int = 0
    discarded: bool = False


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the executing task is; two looks that are equal saw no boundary passed between them.

    executed_ns: of the stretches before this one. operator: the one under way.
    """

    task_id: int
    request_ids: tuple[str, ...]
    executed_ns: int
    cursor: int
    operator: str


class TorchExecutor:
    """Obeys commands with real work (`engine.core.ports.Executor`).

    Bookkeeping is done by the thread that submits, execution by a thread of its own; `emit` is called from both,
    must not block and must not call back.
    The KV blocks of a request are allocated at its first Start, for its prompt and all tokens it may generate.
    """

    def __init__(
        self,
        model: Decoder,
        settings: ExecutorSettings,
        clock: Clock,
        emit: Callable[[Event], None],
        peers: Peers | None = None,
    ) -> None:
        """peers: the other ranks of a tensor-parallel group, of which this is rank 0; None = it is alone."""
        self.settings = settings
        self.model = model
        self._peers = peers or Nobody()
        self._times = OperatorTimes(settings.device_flops_per_s)
        self.cache = KVCache(model.shape, settings.kv_blocks, settings.block_tokens, model.device, model.dtype)
        self._clock = clock
        self._emit = emit
        self._changed = threading.Condition()
        self._requests: dict[str, LiveRequest] = {}
        self._held: dict[int, _Held] = {}
        self._executing: _Held | None = None  # submitted and not over; the thread may not have picked it up yet
        self._picked_up = False
        self._release_later: set[str] = set()
        self._closed = False
        self._hand_overs: KVHandOvers | None = None
        self._thread = threading.Thread(target=self._serve, name="executor", daemon=True)
        self._thread.start()

    def register(self, request_id: str, payload: Payload) -> None:
        """Make a request's tokens known, before its Arrival is put. Raises ValueError when the id is in use."""
        request = LiveRequest.of(payload, self.model.device)
        with self._changed:
            if request_id in self._requests:
                raise ValueError(f"request {request_id} is registered already")
            self._requests[request_id] = request

    def hand_over_by(self, transport: KVTransport, on_sent: Callable[[str, str], None]) -> None:
        """Make this an instance that hands KV over, or gets it. on_sent: told the request and its ticket."""
        model = self.model
        self._hand_overs = KVHandOvers(
            model.shape, self.cache, model.device, model.dtype, transport, on_sent, self._handed_over
        )

    def send_to(self, request_id: str, destination: str) -> None:
        """Where a request's KV goes, before its SendAsked is put. Nothing when the request is gone."""
        with self._changed:
            if request_id in self._requests:
                self._requests[request_id].destination = destination

    def forget(self, request_id: str) -> None:
        """Drop a request's tokens once it is over. Its KV blocks are freed by ReleaseKV, not here."""
        with self._changed:
            self._requests.pop(request_id, None)

    def activation_bytes(self, task: Task) -> int:
        """Bytes the task keeps at its worst boundary while it is preempted."""
        return activation_bytes(self.model.shape, task, self.model.dtype.itemsize)

    def submit(self, commands: Sequence[Command]) -> None:
        """Carry out commands in order, without waiting for their effect. Ignored once closed.

        Raises ValueError when the commands break their contract (a second executing task, an unknown task).
        """
        with self._changed:
            if self._closed:
                return
            for command in commands:
                self._obey(command)

    def progress(self) -> Progress | None:
        """Where the executing task stands; None when nothing executes. From any thread, without waiting."""
        held = self._executing
        if held is None:
            return None
        program = held.program
        cursor = -1 if program is None else program.cursor
        return Progress(held.task.task_id, tuple(held.requests), held.executed_ns, cursor, _doing(program))

    def close(self) -> None:
        """Stop at the next boundary and end the thread. Nothing is emitted afterwards."""
        with self._changed:
            self._closed = True
            if self._executing is not None:
                self._executing.gate.stop_at(0, self._clock.now_ns())
            self._changed.notify()
        self._thread.join()
        if self._hand_overs is not None:
            self._hand_overs.close()

    def check(self) -> None:
        """Raise AssertionError unless every KV block is free or held by one request."""
        with self._changed:
            self.cache.check()

    # Bookkeeping, under the lock.

    def _obey(self, command: Command) -> None:
        match command:
            case Start(task):
                self._start(task)
            case Resume(task_id):
                held = self._held[task_id]
                held.gate.open()
                self._execute(held)
            case Pause(task_id):
                if self._executing is not None and self._executing.task.task_id == task_id:
                    self._executing.gate.stop_at(0, self._clock.now_ns())
            case Discard(task_id):
                self._discard(task_id)
            case ReleaseKV(request_id):
                self._release(request_id)

    def _start(self, task: Task) -> None:
        try:
            # Kept by the task itself: a client that leaves takes its request away from `_requests` at any instant.
            requests = {sequence.request_id: self._requests[sequence.request_id] for sequence in task.sequences}
            for request_id, request in requests.items():
                if request_id not in self.cache.holders:
                    self.cache.allocate(request_id, request.kv_tokens)
                    self._peers.allocate(request_id, request.kv_tokens)
        except KeyError as error:
            self._refuse(task, f"request {error.args[0]} is not registered")
            return
        except KVExhaustedError as error:
            self._refuse(task, str(error))
            return
        except (RuntimeError, MemoryError) as error:
            # torch has no narrower error for memory that is not there, on a CPU.
            log.exception("task %d got no KV blocks", task.task_id)
            self._refuse(task, f"{type(error).__name__}: {error}")
            return
        if task.kind in HAND_OVERS and self._hand_overs is None:
            self._refuse(task, "this executor sends no KV and receives none")
            return
        held = self._held[task.task_id] = _Held(task, requests)
        if self._hand_overs is not None and task.kind in HAND_OVERS:
            self._hand_overs.begin(task, requests[task.sequences[0].request_id])
        else:
            self._execute(held)

    def _refuse(self, task: Task, reason: str) -> None:
        self._emit(Failed(self._clock.now_ns(), 0, task.task_id, reason))

    def _handed_over(self, task: Task, failure: str | None) -> None:
        with self._changed:
            if self._closed:
                return
            now_ns = self._clock.now_ns()
            if failure is not None:
                self._emit(Failed(now_ns, 0, task.task_id, failure))
            else:
                self._emit(Completion(now_ns, 0, task.task_id, 0, ()))
                if task.kind is TaskKind.KV_SEND:  # nobody here speaks of it again
                    self._requests.pop(task.sequences[0].request_id, None)
            self._drop(self._held[task.task_id])

    def _execute(self, held: _Held) -> None:
        if self._executing is not None:
            raise ValueError(f"task {held.task.task_id} cannot execute while task {self._executing.task.task_id} does")
        self._executing, self._picked_up = held, False
        self._changed.notify()

    def _discard(self, task_id: int) -> None:
        held = self._held.get(task_id)
        if held is None:
            return
        if held is self._executing:
            held.discarded = True
            held.gate.stop_at(0, self._clock.now_ns())
        else:
            self._drop(held)

    def _drop(self, held: _Held) -> None:
        """The task is over: nothing writes its members' KV any more."""
        del self._held[held.task.task_id]
        held.program = None
        self._peers.drop(held.task.task_id)
        for request_id in self._release_later & held.requests.keys():
            self._release_later.discard(request_id)
            self._release(request_id)

    def _release(self, request_id: str) -> None:
        if any(request_id in held.requests for held in self._held.values()):
            self._release_later.add(request_id)
            return
        self.cache.free(request_id)
        self._peers.free(request_id)
        self._emit(KVReleased(self._clock.now_ns(), 0, request_id))

    # Execution, on the thread of its own.

    def _serve(self) -> None:
        torch.set_num_threads(self.settings.threads)
        if self.model.device.type == "cuda":
            torch.cuda.set_device(self.model.device)
        with torch.inference_mode():
            while (held := self._next()) is not None:
                self._run(held)

    def _next(self) -> _Held | None:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or (self._executing is not None and not self._picked_up))
            self._picked_up = True
            return None if self._closed else self._executing

    def _run(self, held: _Held) -> None:
        started_at_ns = self._clock.now_ns()
        try:
            if held.program is None:
                held.program = self._plan(held)
            finished = self._step_through(held)
            outputs = self._outputs(held) if finished else ()
        except Exception as error:
            # Whatever breaks in an operator fails its task, never the thread.
            log.exception("task %d failed", held.task.task_id)
            self._end(held, started_at_ns, f"{type(error).__name__}: {error}", finished=True, outputs=())
            return
        self._end(held, started_at_ns, None, finished, outputs)

    def _step_through(self, held: _Held) -> bool:
        assert held.program is not None
        window = new_window(self.model.device, self.settings, self._times)
        return self._peers.run(held.task.task_id, held.program, held.gate, window, self._times.predicted_ns)

    def _plan(self, held: _Held) -> Program:
        task, requests = held.task, held.requests
        token_ids: list[int] = []
        for sequence in task.sequences:
            token_ids += requests[sequence.request_id].tokens(sequence.context_tokens, sequence.new_tokens)
        self._peers.plan(task, token_ids)
        segments = segments_of(task)
        state = build_state(self.model.shape, self.cache, self.model.rope, segments, token_ids)
        choices = [requests[segment.request_id].choice for segment in segments if segment.last]
        return plan_program(self.model, state, choices, self.settings.granularity, self.settings.tiles)

    def _outputs(self, held: _Held) -> tuple[Output, ...]:
        """What the finished task gave; the tokens sampled become part of their requests."""
        assert held.program is not None
        sampled = held.program.state.sampled
        tokens = iter([] if sampled is None else sampled.tolist())
        outputs: list[Output] = []
        for sequence in held.task.sequences:
            token = next(tokens) if sequence.last else None
            request = held.requests[sequence.request_id]
            ended = None if token is None else request.take(token, self.model.shape.eos_token_ids)
            outputs.append(Output(sequence.request_id, token, ended))
        return tuple(outputs)

    def _end(
        self, held: _Held, started_at_ns: int, failure: str | None, finished: bool, outputs: tuple[Output, ...]
    ) -> None:
        """The task is over or paused. Once the lock is taken no pause can reach it any more."""
        with self._changed:
            now_ns = self._clock.now_ns()
            held.executed_ns += now_ns - started_at_ns
            self._executing = None
            if self._closed:
                return
            task_id = held.task.task_id
            if failure is not None:
                self._emit(Failed(now_ns, 0, task_id, failure))
            elif finished:
                self._emit(Completion(now_ns, 0, task_id, held.executed_ns, outputs))
            else:
                held.gate.stopped_at_ns = now_ns
                assert held.program is not None
                self._emit(Preempted(now_ns, 0, task_id, held.executed_ns, held.program.cursor))
            if finished or held.discarded:
                self._drop(held)


def _doing(program: Program | None) -> str:
    if program is None:
        return "planning"
    cursor = program.cursor
    return program.operators[cursor].name if cursor < len(program.operators) else "the end"
