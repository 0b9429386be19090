"""The simulator's clock, heap, event source and executor as the tests of the scheduler drive a world."""

from collections.abc import Sequence

import numpy as np

from engine.core.batch import Task
from engine.core.commands import Discard, ExecutorCommand, ReleaseKV, Start
from engine.core.events import Arrival, Cancelled, Completion, Event, KVReleased
from engine.core.request import Request
from engine.simulation.device import DeviceModel
from engine.simulation.event_heap import EventHeap
from engine.simulation.event_source import SimulatedEvents
from engine.simulation.executor import RequestLengths, SimulatedExecutor
from engine.simulation.settings import SimulationSettings
from engine.simulation.timed_program import TimedProgram
from engine.simulation.virtual_clock import VirtualClock
from tests.fakes.fake_executor import Operators, four_operators


class ListedDevice:
    """Operators of so many nanoseconds; a task may stop before each of them."""

    def __init__(self, operators: Operators = four_operators, boundary: Sequence[bool] | None = None) -> None:
        self._operators = operators
        self._boundary = boundary

    def program(self, task: Task) -> TimedProgram:
        seconds = np.array(self._operators(task), dtype=float) / 1e9
        boundary = np.ones(len(seconds), dtype=bool) if self._boundary is None else np.array(self._boundary)
        return TimedProgram(seconds, boundary)


class NoClients:
    """Everything comes through the heap."""

    next_arrival_ns = None
    last_due_ns = 0

    def send_until(self, at_ns: int) -> list[Arrival]:
        return []


class SimulatedWorld:
    """As tests.fakes.FakeExecutor to a rig; refuses commands that use KV wrongly."""

    def __init__(self, device: DeviceModel | None = None, settings: SimulationSettings | None = None) -> None:
        settings = settings or SimulationSettings()
        self.clock, self.heap = VirtualClock(), EventHeap()
        self.executor = SimulatedExecutor(device or ListedDevice(), settings, self.clock, self.heap)
        self.source = SimulatedEvents(NoClients(), self.executor, settings, self.clock, self.heap, None)
        self.commands: list[ExecutorCommand] = []
        self.kv_holders: set[str] = set()
        self.kv_releasing: set[str] = set()
        self._writers: dict[int, set[str]] = {}
        self._known: set[str] = set()

    def now_ns(self) -> int:
        return self.clock.now_ns()

    def wait(self) -> list[Event]:
        events = self.source.wait()
        for event in events:
            if isinstance(event, KVReleased):
                self.kv_releasing.discard(event.request_id)
            elif isinstance(event, Completion):
                del self._writers[event.task_id]
        return events

    def arrive(self, request: Request) -> None:
        if request.request_id not in self._known:
            self._known.add(request.request_id)
            self.executor.register(request.request_id, RequestLengths(request.prompt_tokens, request.max_tokens))
        self.heap.put(Arrival(request.arrived_at_ns, self.heap.number(), request))

    def cancel(self, request_id: str, at_ns: int) -> None:
        self.heap.put(Cancelled(at_ns, self.heap.number(), request_id))

    def submit(self, commands: Sequence[ExecutorCommand]) -> None:
        for command in commands:
            self.commands.append(command)
            match command:
                case Start(task):
                    members = {sequence.request_id for sequence in task.sequences}
                    assert self.kv_releasing.isdisjoint(members), "KV used again before it was free"
                    self.kv_holders |= members
                    self._writers[task.task_id] = members
                case Discard(task_id):
                    del self._writers[task_id]
                case ReleaseKV(request_id):
                    writers = [ids for ids in self._writers.values() if request_id in ids]
                    assert not writers, f"KV of {request_id} is released while a task may write it"
                    self.kv_holders.remove(request_id)
                    self.kv_releasing.add(request_id)
        self.executor.submit(commands)
