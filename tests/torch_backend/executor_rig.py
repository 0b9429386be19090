"""An executor under a test's control, and the commands the tests give it."""

import threading
from collections.abc import Callable

import pytest

from engine.core.batch import Sequence, Task, TaskKind
from engine.core.commands import Start
from engine.core.events import Event
from engine.model.granularity import Granularity
from engine.torch_backend.clock import MonotonicClock
from engine.torch_backend.event_queue import EventQueue
from engine.torch_backend.executor import TorchExecutor
from engine.torch_backend.models.llama import Llama
from engine.torch_backend.payload import Payload
from engine.torch_backend.sampling import SamplingSettings
from engine.torch_backend.settings import ExecutorSettings
from tests.torch_backend.engine_run import SMALL_TILES


class Rig:
    """An executor, its events one by one, and operators that wait until the test lets them go."""

    def __init__(self, model: Llama, granularity: Granularity = Granularity.OPERATOR, kv_blocks: int = 64) -> None:
        self.queue = EventQueue()
        settings = ExecutorSettings(granularity, SMALL_TILES, kv_blocks=kv_blocks, block_tokens=8)
        self.executor = TorchExecutor(model, settings, MonotonicClock(), self.queue.put)
        self.waiting: list[Event] = []

    def event(self) -> Event:
        while not self.waiting:
            self.waiting = self.queue.wait()
        return self.waiting.pop(0)

    def register(self, request_id: str, tokens: list[int], **sampling: object) -> None:
        self.executor.register(request_id, Payload(tuple(tokens), SamplingSettings(**sampling)))  # type: ignore[arg-type]


def prefill(task_id: int, *shares: Sequence) -> Start:
    return Start(Task(task_id, TaskKind.PREFILL, shares))


def decode(task_id: int, *shares: Sequence) -> Start:
    return Start(Task(task_id, TaskKind.DECODE_STEP, shares))


class HeldOperator:
    """Makes one operator of a model stop the executing thread until `go`; `reached` tells that it is there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, model: Llama, name: str) -> None:
        self.reached, self.go = threading.Event(), threading.Event()
        plain: Callable[..., None] = getattr(model, name)

        def held(*arguments: object) -> None:
            self.reached.set()
            assert self.go.wait(120)
            plain(*arguments)

        monkeypatch.setattr(model, name, held)
