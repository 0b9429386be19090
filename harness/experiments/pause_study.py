"""Pauses asked at random instants of the same prefills, at one granularity or chunk size, against the executor itself.

Instants are uniform over the time that tasks execute, whatever the task is doing then: the wait for the next boundary
is seen as a random arrival sees it. A chunked prefill has no pauses: it is left when the chunk under way ends.
"""

import queue
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from engine.core.batch import Sequence as Share
from engine.core.batch import Task, TaskKind
from engine.core.clock import NS_PER_S
from engine.core.commands import Pause, ReleaseKV, Resume, Start
from engine.core.events import Completion, Event, Failed, Preempted
from engine.torch_backend.boundary_gaps import boundary_gaps_ns
from engine.torch_backend.clock import MonotonicClock
from engine.torch_backend.executor import TorchExecutor
from engine.torch_backend.models.decoder import Decoder
from engine.torch_backend.payload import Payload
from engine.torch_backend.sampling import SamplingSettings
from engine.torch_backend.settings import ExecutorSettings


class PauseStudyError(RuntimeError):
    """A prefill of the study failed."""


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass over all prompts. blocking_ns: a sample per pause asked; executed_ns: time the tasks executed."""

    blocking_ns: tuple[int, ...]
    executed_ns: int
    preemptions: int


class PauseStudy:
    """One executor under one setting; to be closed.

    prompts: token ids of each prefill. chunk_tokens: tokens of a chunk as sent; None = whole prefills.
    """

    def __init__(
        self, model: Decoder, settings: ExecutorSettings, prompts: Sequence[tuple[int, ...]], chunk_tokens: int | None
    ) -> None:
        self._model = model
        self._settings = settings
        self._prompts = prompts
        self._chunk_tokens = chunk_tokens
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._clock = MonotonicClock()
        self._executor = TorchExecutor(model, settings, self._clock, self._events.put)
        self._next_task_id = 0

    def close(self) -> None:
        """End the executor's thread."""
        self._executor.close()

    @property
    def tokens(self) -> int:
        """Prompt tokens of a pass."""
        return sum(len(prompt) for prompt in self._prompts)

    def run(self, instants_ns: Sequence[int] = ()) -> Pass:
        """All prompts once. instants_ns: when to ask for a pause, on the clock that runs while a task executes."""
        run = _Running(self._executor, self._events, self._clock, sorted(instants_ns))
        for number, prompt in enumerate(self._prompts):
            request_id = f"p{number}"
            self._executor.register(request_id, Payload(prompt, SamplingSettings(max_tokens=1, ignore_eos=True)))
            for share in self._shares(request_id, len(prompt)):
                run.execute(Task(self._next_task_id, TaskKind.PREFILL, (share,)))
                self._next_task_id += 1
            self._executor.submit([ReleaseKV(request_id)])
            self._events.get()
            self._executor.forget(request_id)
        return Pass(tuple(run.blocking_ns), run.executed_ns, run.preemptions)

    def gaps_ns(self) -> list[int]:
        """Execution time between one possible stop and the next, over all prompts, measured without pauses."""
        return [
            gap
            for prompt in self._prompts
            for gap in boundary_gaps_ns(self._model, self._settings, self._clock, prompt, self._chunk_tokens, rounds=1)
        ]

    def _shares(self, request_id: str, length: int) -> Iterator[Share]:
        step = self._chunk_tokens or length
        for start in range(0, length, step):
            stop = min(start + step, length)
            yield Share(request_id, start, stop - start, last=stop == length)


class _Running:
    """The asking side of one pass."""

    def __init__(
        self,
        executor: TorchExecutor,
        events: "queue.SimpleQueue[Event]",
        clock: MonotonicClock,
        instants_ns: Sequence[int],
    ) -> None:
        self._executor = executor
        self._events = events
        self._clock = clock
        self._instants_ns = list(reversed(instants_ns))
        self._asked_at_ns: list[int] = []
        self._resumed_at_ns = 0
        self.executed_ns = 0
        self.blocking_ns: list[int] = []
        self.preemptions = 0

    def execute(self, task: Task) -> None:
        """Run a task to its end, paused where the instants say, resumed at once."""
        self._resumed_at_ns = self._clock.now_ns()
        self._executor.submit([Start(task)])
        while True:
            match self._next_event():
                case None:
                    self._ask(task.task_id)
                case Preempted(at_ns=at_ns):
                    self._stopped(at_ns)
                    self.preemptions += 1
                    self._resumed_at_ns = self._clock.now_ns()
                    self._executor.submit([Resume(task.task_id)])
                case Completion(at_ns=at_ns):
                    self._stopped(at_ns)
                    return
                case Failed(reason=reason):
                    raise PauseStudyError(reason)
                case other:
                    raise PauseStudyError(f"{type(other).__name__} came, which nobody asked for")

    def _next_event(self) -> Event | None:
        """None = the next instant has come first."""
        if not self._instants_ns:
            return self._events.get()
        due_ns = self._resumed_at_ns + self._instants_ns[-1] - self.executed_ns
        wait_s = max(0.0, (due_ns - self._clock.now_ns()) / NS_PER_S)
        try:
            return self._events.get(timeout=wait_s) if wait_s > 0 else self._events.get_nowait()
        except queue.Empty:
            return None

    def _ask(self, task_id: int) -> None:
        """An instant has come: a pause is asked, or the one already asked serves this instant too."""
        self._instants_ns.pop()
        self._asked_at_ns.append(self._clock.now_ns())
        if len(self._asked_at_ns) == 1:
            self._executor.submit([Pause(task_id)])

    def _stopped(self, at_ns: int) -> None:
        self.executed_ns += max(0, at_ns - self._resumed_at_ns)
        self.blocking_ns += [max(0, at_ns - asked_at_ns) for asked_at_ns in self._asked_at_ns]
        self._asked_at_ns.clear()


def uniform_instants_ns(count: int, span_ns: int, seed: int) -> list[int]:
    """`count` instants drawn uniformly over [0, span), sorted; the same shares of the span for one seed."""
    rng = random.Random(f"pauses {seed}")
    return sorted(int(rng.random() * span_ns) for _ in range(count))
