"""The real scheduler, driver and executor on one model, driven step by step by a test. No step depends on timing."""

import io
import threading
from collections.abc import Callable, Sequence

import pytest

from engine.core.batch import Task
from engine.core.commands import ExecutorCommand, Resume, Start
from engine.core.events import Arrival, Cancelled, Completion, Event, Output
from engine.core.ports import Batching, Policy
from engine.core.request import Request
from engine.core.slo import SLO
from engine.model.granularity import Granularity, TileSettings
from engine.scheduling.decision_log import DecisionLog, read, replay
from engine.scheduling.driver import Driver
from engine.scheduling.predictors.polynomial import PolynomialPredictor
from engine.scheduling.scheduler import Scheduler, SchedulerSettings
from engine.torch_backend.clock import MonotonicClock
from engine.torch_backend.event_queue import EventQueue
from engine.torch_backend.executor import TorchExecutor
from engine.torch_backend.models.llama import Llama
from engine.torch_backend.payload import Payload
from engine.torch_backend.sampling import SamplingSettings
from engine.torch_backend.settings import ExecutorSettings
from engine.torch_backend.task_state import TaskState
from tests.torch_backend.engine_run import SMALL_TILES, prompt

PATIENCE_S = 120


class ScheduledEngine:
    """`step` waits for something to happen and makes one scheduling call, on the test's own thread.

    token_ns: the predictor's price of a token. Prices far above what a token takes keep the order of work
    independent of the machine.
    """

    def __init__(
        self,
        model: Llama,
        policy: Policy,
        batching: Batching,
        kv_blocks: int,
        block_tokens: int = 16,
        granularity: Granularity = Granularity.OPERATOR,
        token_ns: int = 10_000_000,
        tiles: TileSettings = SMALL_TILES,
        activation_capacity_bytes: int = 1 << 40,
    ) -> None:
        self.clock, self.queue = MonotonicClock(), EventQueue()
        backend = ExecutorSettings(granularity, tiles, kv_blocks=kv_blocks, block_tokens=block_tokens)
        self.executor = TorchExecutor(model, backend, self.clock, self.queue.put)
        limits = SchedulerSettings(kv_blocks, block_tokens, activation_capacity_bytes, model.shape.max_positions)
        predictor = PolynomialPredictor((0.0, token_ns / 1e9, 0.0, 0.0))

        def fresh() -> Scheduler:
            return Scheduler(policy, batching, predictor, limits, self.executor.activation_bytes)

        self._fresh, self._log_file = fresh, io.StringIO()
        self.scheduler = fresh()
        self.driver = Driver(self.scheduler, self, self.queue, self.clock, self, DecisionLog(self._log_file, {}))
        self.commands: list[ExecutorCommand] = []
        self.executing: Task | None = None
        self.live: dict[str, Request] = {}
        self.completed: list[str] = []
        self.rejected_ids: list[str] = []
        self._tasks: dict[int, Task] = {}
        self._arrived = 0

    # What clients do.

    def arrive(self, *wanted: tuple[str, int, int | None, int]) -> None:
        """Requests of one instant: (id, prompt tokens, TTFT SLO in ns, tokens to generate)."""
        at_ns = self.clock.now_ns()
        for name, tokens, slo_ns, max_tokens in wanted:
            sampling = SamplingSettings(max_tokens=max_tokens, ignore_eos=True)
            self.executor.register(name, Payload(tuple(prompt(tokens, seed=self._arrived)), sampling))
            self.live[name] = Request(name, self._arrived, at_ns, tokens, max_tokens, SLO(slo_ns))
            self._arrived += 1
        for name, *_ in wanted:
            self.queue.put(Arrival(at_ns, 0, self.live[name]))

    def cancel(self, name: str) -> None:
        self.queue.put(Cancelled(self.clock.now_ns(), 0, name))

    # Driving.

    def step(self) -> list[Event]:
        events = self.queue.wait()
        for event in events:
            if isinstance(event, Completion):
                self.executing = None
            elif isinstance(event, Cancelled):
                self._over(event.request_id)
        self.driver.step(events)
        self.scheduler.check()
        self.executor.check()
        return events

    def drain(self) -> None:
        """Until every request is over and all its memory is back."""
        while self.scheduler._book.requests:
            self.step()

    def check_baseline(self) -> None:
        """Nothing live, nothing held, in the scheduler and in the executor."""
        live = self.scheduler.live
        assert (live.waiting, live.executing, live.preempted, live.decoding) == (0, 0, 0, 0)
        assert self.scheduler.kv_free_blocks == self.executor.settings.kv_blocks
        assert self.scheduler.activation_held_bytes == 0
        assert self.executor.cache.free_blocks == self.executor.settings.kv_blocks
        assert (self.executor._held, self.executor._requests, self.executor._release_later) == ({}, {}, set())
        self.scheduler.check()
        self.executor.check()

    def check_replay(self) -> None:
        """A fresh scheduler, fed the decision log of this real run, gives the same commands."""
        _, calls = read(self._log_file.getvalue().splitlines())
        assert replay(calls, self._fresh()) == []

    @property
    def runs(self) -> tuple[str, ...]:
        """ "A+B" for a start, "~A" for a resumption, as in the scenarios."""
        found = []
        for command in self.commands:
            if isinstance(command, Start | Resume):
                task_id = command.task.task_id if isinstance(command, Start) else command.task_id
                names = "+".join(sequence.request_id for sequence in self._tasks[task_id].sequences)
                found.append(names if isinstance(command, Start) else f"~{names}")
        return tuple(found)

    # The executor as the driver sees it.

    def submit(self, commands: Sequence[ExecutorCommand]) -> None:
        for command in commands:
            self.commands.append(command)
            if isinstance(command, Start):
                self._tasks[command.task.task_id] = self.executing = command.task
            elif isinstance(command, Resume):
                self.executing = self._tasks[command.task_id]
        self.executor.submit(commands)

    # The driver's sink.

    def deliver(self, outputs: Sequence[Output]) -> None:
        for output in outputs:
            if output.finish_reason is not None and output.request_id in self.live:
                self.completed.append(output.request_id)
                self._over(output.request_id)

    def rejected(self, request_id: str, reason: str, never: bool) -> None:
        self.rejected_ids.append(request_id)
        self._over(request_id)

    def failed(self, request_id: str, reason: str) -> None:
        raise AssertionError(f"{request_id} failed: {reason}")

    def _over(self, name: str) -> None:
        if self.live.pop(name, None) is not None:
            self.executor.forget(name)


class HeldStarts:
    """Every task waits in its first operator until the test lets it go on; a resumed one has that behind it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, model: Llama) -> None:
        self._go = threading.Semaphore(0)
        self._open = False
        self._let_go: set[int] = set()
        plain: Callable[[TaskState], None] = model.embedding

        def held(state: TaskState) -> None:
            if not self._open:
                assert self._go.acquire(timeout=PATIENCE_S), "a task was held and never let go"
            plain(state)

        monkeypatch.setattr(model, "embedding", held)

    def let_go(self, task: Task | None) -> None:
        """Of a task that was let go before, or of none, this changes nothing."""
        if task is not None and task.task_id not in self._let_go:
            self._let_go.add(task.task_id)
            self._go.release()

    def open(self) -> None:
        """From now on nothing is held."""
        self._open = True
        self._go.release()
