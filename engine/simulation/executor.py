"""The execution pool on a virtual clock: one executing task, the preempted ones."""

from collections.abc import Sequence
from dataclasses import dataclass

from engine.core.batch import HAND_OVERS, Task, TaskKind
from engine.core.clock import seconds_to_ns
from engine.core.commands import Discard, ExecutorCommand, Pause, ReleaseKV, Resume, Start
from engine.core.events import Completion, KVReleased, Output, Preempted
from engine.simulation.device import DeviceModel
from engine.simulation.disturbance import OperatorNoise
from engine.simulation.event_heap import EventHeap
from engine.simulation.settings import SimulationSettings
from engine.simulation.simulated_transport import SimulatedTransport
from engine.simulation.task_progress import TaskProgress
from engine.simulation.virtual_clock import VirtualClock


@dataclass(frozen=True, slots=True)
class RequestLengths:
    """What the executor must know of a request to give its tokens: how long it is and may become."""

    prompt_tokens: int
    max_tokens: int


@dataclass(slots=True, eq=False)
class _Executing:
    """over: how and when it will stop, as far as is known now."""

    progress: TaskProgress
    begins_at_ns: int
    over: Completion | Preempted


class SimulatedExecutor:
    """Obeys commands in virtual time (`engine.core.ports.Executor`); what follows from them goes to the heap.

    A completed task gives each sequence that ends its prompt, or decodes, its next token, numbered from 1.
    """

    def __init__(
        self,
        device: DeviceModel,
        settings: SimulationSettings,
        clock: VirtualClock,
        heap: EventHeap,
        transport: SimulatedTransport | None = None,
    ) -> None:
        self._device = device
        self._transport = transport
        self._clock = clock
        self._heap = heap
        self._noise = OperatorNoise(settings.noise_cv, settings.noise_seed)
        before_operators = settings.rounds == "operator"
        self._operator_round_s = settings.round_s if before_operators else 0.0
        self._command_ns = 0 if before_operators else seconds_to_ns(settings.round_s)
        self._runs_on_ns = seconds_to_ns(settings.signal_delay_s) + seconds_to_ns(settings.launch_ahead_s)
        self._switch_ns = seconds_to_ns(settings.switch_s)
        self._requests: dict[str, RequestLengths] = {}
        self._held: dict[int, TaskProgress] = {}
        self._executing: _Executing | None = None
        self.operator_rounds = 0
        """Rounds where every operator has one before it: those, and one where a task stops or none follows."""

    def register(self, request_id: str, lengths: RequestLengths) -> None:
        """Make a request known, before its Arrival is handled."""
        self._requests[request_id] = lengths

    def forget(self, request_id: str) -> None:
        """Drop what is known of a request that is over. Nothing when there is nothing."""
        self._requests.pop(request_id, None)

    def submit(self, commands: Sequence[ExecutorCommand]) -> None:
        """Carry out commands in order. Raises ValueError when they break their contract, or from the device model."""
        ended = self._settle()
        for command in commands:
            match command:
                case Start(task) if task.kind in HAND_OVERS:
                    self._hand_over(task)
                case Start(task):
                    self._start(task)
                case Resume(task_id):
                    self._execute(self._find(task_id))
                case Pause(task_id):
                    self._pause(task_id)
                case Discard(task_id):
                    self._discard(task_id)
                case ReleaseKV(request_id):
                    self._heap.put(KVReleased(self._clock.now_ns(), self._heap.number(), request_id))
        self.operator_rounds += ended and self._executing is None

    def next_operator_at_ns(self, at_ns: int) -> int:
        """The first instant from `at_ns` on at which an operator of the executing task begins, or the task stops."""
        executing = self._executing
        if executing is None or at_ns >= executing.over.at_ns:
            return at_ns
        progress = executing.progress
        if progress.continuous:
            raise ValueError("rounds before every operator need a device model that knows the operators")
        if isinstance(executing.over, Preempted):  # `progress` is already where it will have stopped
            return executing.over.at_ns
        origin_ns = executing.begins_at_ns - progress.executed_ns
        return min(executing.over.at_ns, origin_ns + progress.next_operator_ns(at_ns - origin_ns))

    def _settle(self) -> bool:
        """A task whose last event has been seen executes no more; whether there was one."""
        executing = self._executing
        if executing is None or executing.over.at_ns > self._clock.now_ns():
            return False
        self._executing = None
        if isinstance(executing.over, Completion):
            self.operator_rounds += len(executing.progress.ends_ns) - executing.progress.cursor
            del self._held[executing.over.task_id]
        return True

    def _hand_over(self, task: Task) -> None:
        """Beside what executes. The transport's time is the sender's: who receives has the KV when it arrives."""
        if self._transport is None:
            raise ValueError(f"task {task.task_id} moves KV: there is no transport to another instance")
        took_ns = self._transport.hand_over_ns(task.sequences[0].context_tokens) if task.kind is TaskKind.KV_SEND else 0
        at_ns = self._clock.now_ns() + self._command_ns + took_ns
        self._heap.put(Completion(at_ns, self._heap.number(), task.task_id, 0, ()))

    def _start(self, task: Task) -> None:
        program = self._device.program(task)
        seconds = self._noise.disturb(program.seconds)
        if self._operator_round_s:
            seconds = seconds + self._operator_round_s
        progress = self._held[task.task_id] = TaskProgress.of(task, program, seconds)
        self._execute(progress)

    def _execute(self, progress: TaskProgress) -> None:
        task = progress.task
        if self._executing is not None:
            other = self._executing.progress.task.task_id
            raise ValueError(f"task {task.task_id} cannot execute while task {other} does")
        begins_at_ns = self._clock.now_ns() + self._command_ns
        ends_at_ns = begins_at_ns + progress.left_ns
        over = Completion(ends_at_ns, self._heap.number(), task.task_id, progress.total_ns, self._outputs(task))
        self._executing = _Executing(progress, begins_at_ns, over)
        self._heap.put(over)

    def _pause(self, task_id: int) -> None:
        executing = self._executing
        if executing is None or executing.over.task_id != task_id:
            return  # it ended at this very instant
        progress = executing.progress
        heard_at_ns = self._clock.now_ns() + self._command_ns + self._runs_on_ns
        stop = progress.stop_from(progress.executed_ns + heard_at_ns - executing.begins_at_ns)
        if stop is None:
            return  # it ends first
        self._heap.withdraw(executing.over.event_seq)
        stops_at_ns = executing.begins_at_ns + stop.executed_ns - progress.executed_ns
        self.operator_rounds += stop.cursor - progress.cursor + 1
        progress.go_to(stop)
        executing.over = Preempted(
            stops_at_ns + self._switch_ns, self._heap.number(), task_id, stop.executed_ns, stop.cursor
        )
        self._heap.put(executing.over)

    def _discard(self, task_id: int) -> None:
        progress = self._find(task_id)
        if self._executing is not None and self._executing.progress is progress:
            raise ValueError(f"task {task_id} cannot be discarded while it executes")
        del self._held[task_id]

    def _find(self, task_id: int) -> TaskProgress:
        if task_id not in self._held:
            raise ValueError(f"task {task_id} is not held")
        return self._held[task_id]

    def _outputs(self, task: Task) -> tuple[Output, ...]:
        return tuple(self._output(task, s.request_id, s.context_tokens, s.last) for s in task.sequences)

    def _output(self, task: Task, request_id: str, context_tokens: int, last: bool) -> Output:
        lengths = self._requests.get(request_id)
        if not last or lengths is None:
            return Output(request_id, None)
        # A decode step computes the token before the one it gives.
        decoding = task.kind is TaskKind.DECODE_STEP
        token = context_tokens - lengths.prompt_tokens + 2 if decoding else 1
        return Output(request_id, token, "length" if token >= lengths.max_tokens else None)
