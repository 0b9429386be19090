"""What the simulated executor answers, by hand: tasks of four operators of 250 ns a token."""

import pytest

from engine.core.batch import Sequence, Task, TaskKind
from engine.core.commands import Discard, ExecutorCommand, Pause, ReleaseKV, Resume, Start
from engine.core.events import Completion, Event, KVReleased, Output, Preempted
from engine.simulation.devices.curve import CurveDevice
from engine.simulation.event_heap import EventHeap
from engine.simulation.executor import RequestLengths, SimulatedExecutor
from engine.simulation.settings import SimulationSettings
from engine.simulation.virtual_clock import VirtualClock
from tests.simulation.simulated_world import ListedDevice

NS = 1e-9


def task(task_id: int, tokens: int, name: str = "A", context: int = 0, last: bool = True) -> Task:
    return Task(task_id, TaskKind.PREFILL, (Sequence(name, context, tokens, last),))


class Bench:
    def __init__(self, device: object = None, **settings: float) -> None:
        self.clock, self.heap = VirtualClock(), EventHeap()
        world = SimulationSettings(**settings)
        self.executor = SimulatedExecutor(device or ListedDevice(), world, self.clock, self.heap)
        for name in "ABC":
            self.executor.register(name, RequestLengths(10, 2))

    def at(self, at_ns: int, *commands: ExecutorCommand) -> None:
        assert self.heap.next_at_ns is None or self.heap.next_at_ns >= at_ns, "an event was overlooked"
        self.clock.advance_to(at_ns)
        self.executor.submit(commands)

    def next(self) -> Event:
        at_ns = self.heap.next_at_ns
        assert at_ns is not None
        self.clock.advance_to(max(at_ns, self.clock.now_ns()))
        (event,) = self.heap.take_until(at_ns)
        return event

    def kept(self) -> tuple[str, int, int]:
        """(kind, instant, executed) of the next event, and the executor hears the call that follows it."""
        event = self.next()
        assert isinstance(event, Completion | Preempted)
        self.executor.submit([])
        return (type(event).__name__, event.at_ns, event.executed_ns)


def test_a_task_completes_after_its_operators() -> None:
    bench = Bench()
    bench.at(100, Start(task(7, 4)))
    assert bench.next() == Completion(4100, 0, 7, 4000, (Output("A", 1, None),))


def test_a_pause_takes_effect_at_the_next_boundary_and_the_task_resumes_from_there() -> None:
    bench = Bench()
    bench.at(0, Start(task(7, 4)))
    bench.at(1001, Pause(7))
    event = bench.next()
    assert isinstance(event, Preempted)
    assert (event.at_ns, event.executed_ns, event.operator_index) == (2000, 2000, 2)
    bench.at(2000, Start(task(8, 1, "B")))
    assert bench.kept() == ("Completion", 3000, 1000)
    bench.at(5000, Resume(7))
    bench.at(5500, Pause(7))
    assert bench.kept() == ("Preempted", 6000, 3000)
    bench.at(6000, Resume(7))
    assert bench.kept() == ("Completion", 7000, 4000)


def test_a_pause_in_the_last_operator_comes_too_late() -> None:
    bench = Bench()
    bench.at(0, Start(task(7, 4)))
    bench.at(3001, Pause(7))
    assert bench.kept() == ("Completion", 4000, 4000)


def test_a_pause_of_a_task_that_ends_now_is_ignored() -> None:
    bench = Bench()
    bench.at(0, Start(task(7, 4)))
    assert isinstance(bench.next(), Completion)
    bench.executor.submit([Pause(7)])
    assert bench.heap.next_at_ns is None


@pytest.mark.parametrize(
    ("settings", "stops_at_ns", "executed_ns"),
    [
        ({}, 1000, 1000),
        ({"signal_delay_s": 600 * NS}, 2000, 2000),  # heard at 1100
        ({"launch_ahead_s": 400 * NS}, 1000, 1000),  # launched up to 900
        ({"launch_ahead_s": 501 * NS}, 2000, 2000),
        ({"signal_delay_s": 300 * NS, "launch_ahead_s": 300 * NS}, 2000, 2000),
        ({"switch_s": 70 * NS}, 1070, 1000),  # the device is lost for so long, and nothing is computed
    ],
)
def test_what_delays_a_pause(settings: dict[str, float], stops_at_ns: int, executed_ns: int) -> None:
    bench = Bench(**settings)
    bench.at(0, Start(task(7, 4)))
    bench.at(500, Pause(7))
    assert bench.kept() == ("Preempted", stops_at_ns, executed_ns)


def test_commands_take_effect_after_the_round() -> None:
    bench = Bench(round_s=50 * NS)
    bench.at(0, Start(task(7, 4)))
    bench.at(990, Pause(7))  # heard at 1040; its operators end at 1050, 2050, ...
    assert bench.kept() == ("Preempted", 1050, 1000)
    bench.at(1050, Resume(7))
    assert bench.kept() == ("Completion", 4100, 4000)


def test_a_pause_may_be_heard_before_the_first_operator() -> None:
    bench = Bench(round_s=50 * NS)
    bench.at(0, Start(task(7, 4)))
    bench.at(0, Pause(7))
    assert bench.kept() == ("Preempted", 50, 0)


def test_a_continuous_task_stops_at_once() -> None:
    bench = Bench(CurveDevice(0.0, 1e-6, 0.0), switch_s=70 * NS)
    bench.at(0, Start(task(7, 4)))
    bench.at(1234, Pause(7))
    assert bench.kept() == ("Preempted", 1304, 1234)
    bench.at(2000, Resume(7))
    assert bench.kept() == ("Completion", 2000 + 4000 - 1234, 4000)


def test_a_chunk_gives_no_token_and_a_last_one_the_first() -> None:
    bench = Bench()
    bench.at(0, Start(task(1, 4, last=False)))
    event = bench.next()
    assert isinstance(event, Completion)
    assert event.outputs == (Output("A", None),)


def test_decode_steps_count_tokens_up_to_the_last() -> None:
    bench = Bench()
    bench.executor.register("B", RequestLengths(5, 3))
    sequences = (Sequence("A", 10, 1), Sequence("B", 5, 1), Sequence("gone", 3, 1))
    bench.at(0, Start(Task(1, TaskKind.DECODE_STEP, sequences)))
    event = bench.next()
    assert isinstance(event, Completion)
    assert event.outputs == (Output("A", 2, "length"), Output("B", 2, None), Output("gone", None))


def test_kv_comes_back_at_once() -> None:
    bench = Bench()
    bench.at(40, ReleaseKV("A"))
    assert bench.next() == KVReleased(40, 0, "A")


def test_commands_that_break_the_contract_are_refused() -> None:
    bench = Bench()
    bench.at(0, Start(task(7, 4)))
    for command, words in (
        (Start(task(8, 1)), "task 8 cannot execute while task 7 does"),
        (Resume(9), "task 9 is not held"),
        (Discard(7), "task 7 cannot be discarded while it executes"),
    ):
        with pytest.raises(ValueError, match=words):
            bench.executor.submit([command])


def test_a_discarded_task_is_gone() -> None:
    bench = Bench()
    bench.at(0, Start(task(7, 4)))
    bench.at(500, Pause(7))
    bench.kept()
    bench.at(1000, Discard(7))
    with pytest.raises(ValueError, match="task 7 is not held"):
        bench.executor.submit([Resume(7)])


def test_rounds_before_operators_are_paid_on_the_devices_path() -> None:
    bench = Bench(rounds="operator", round_s=50 * NS)
    bench.at(0, Start(task(7, 4)))
    assert [bench.executor.next_operator_at_ns(at) for at in (0, 1, 1050, 1051, 3151)] == [0, 1050, 1050, 2100, 4200]
    bench.at(1050, Pause(7))
    assert bench.kept() == ("Preempted", 1050, 1050)
    bench.at(1050, Resume(7))
    assert bench.kept() == ("Completion", 4200, 4200)
    assert bench.executor.operator_rounds == 4 + 1 + 2  # before each; where it stopped; twice nothing followed


def test_a_curve_has_no_operators_to_make_rounds_before() -> None:
    bench = Bench(CurveDevice(0.0, 1e-6, 0.0), rounds="operator")
    bench.at(0, Start(task(7, 4)))
    with pytest.raises(ValueError, match="knows the operators"):
        bench.executor.next_operator_at_ns(5)
