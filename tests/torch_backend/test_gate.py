from engine.core.batch import Sequence
from engine.model.granularity import Granularity
from engine.torch_backend.gate import Gate, LaunchWindow
from engine.torch_backend.models.llama import Llama
from engine.torch_backend.program import Operator, Program
from tests.torch_backend.engine_run import new_cache, plan, prompt


class FakeEvent:
    """Reached when it is waited for, or when the test says so."""

    def __init__(self, log: list[str]) -> None:
        self.log, self.reached, self.number = log, False, len([line for line in log if line.startswith("record")])

    def record(self) -> None:
        self.log.append(f"record {self.number}")

    def synchronize(self) -> None:
        self.log.append(f"wait {self.number}")
        self.reached = True

    def query(self) -> bool:
        return self.reached


def window(log: list[str], events: list[FakeEvent], bound_ns: int = 100) -> LaunchWindow:
    def new_event() -> FakeEvent:
        events.append(FakeEvent(log))
        return events[-1]

    return LaunchWindow(bound_ns, new_event)


def test_at_most_two_long_operators_are_in_flight() -> None:
    log: list[str] = []
    ahead = window(log, [])
    for _ in range(4):
        ahead.before_launch()
        ahead.launched(1000)
    assert log == ["record 0", "record 1", "wait 0", "record 2", "wait 1", "record 3"]


def test_short_operators_fill_the_bound() -> None:
    log: list[str] = []
    ahead = window(log, [])
    for _ in range(6):
        ahead.before_launch()
        ahead.launched(25)
    assert log == ["record 0", "record 1", "record 2", "record 3", "wait 0", "record 4", "wait 1", "record 5"]


def test_operators_that_are_done_make_room_without_waiting() -> None:
    log: list[str] = []
    events: list[FakeEvent] = []
    ahead = window(log, events)
    for _ in range(3):
        ahead.before_launch()
        ahead.launched(1000)
        events[-1].reached = True
    assert log == ["record 0", "record 1", "record 2"]
    ahead.drain()


def test_drain_waits_for_the_last_one_only() -> None:
    log: list[str] = []
    ahead = window(log, [])
    ahead.launched(1)
    ahead.launched(1)
    ahead.drain()
    ahead.drain()
    assert log == ["record 0", "record 1", "wait 1"]


def steps(model: Llama, granularity: Granularity) -> Program:
    cache = new_cache(model)
    cache.allocate("a", 20)
    return plan(model, cache, [Sequence("a", 0, 20)], {"a": prompt(20)}, granularity)


def test_stop_at_an_absolute_index_stops_at_the_next_boundary_from_there(tiny: Llama) -> None:
    gate = Gate()
    gate.stop_at(3, now_ns=5)
    program = steps(tiny, Granularity.LAYER)
    assert not program.run(gate)
    assert (program.cursor, program.operators[program.cursor].name) == (6, "L1.qkv_proj")
    gate.stop_at(7, now_ns=6)
    assert not program.run(gate)
    assert program.operators[program.cursor].name == "head"
    gate.open()
    assert program.run(gate)
    assert program.cursor == len(program.operators)


def test_granularity_none_runs_to_its_end(tiny: Llama) -> None:
    gate = Gate()
    gate.stop_at(0, now_ns=5)
    assert steps(tiny, Granularity.NONE).run(gate)


def test_launching_ahead_stops_at_the_boundary_and_drains(tiny: Llama) -> None:
    log: list[str] = []
    gate, program = Gate(), steps(tiny, Granularity.OPERATOR)
    gate.stop_at(4, now_ns=5)
    assert not program.launch(gate, window(log, [], bound_ns=10), lambda _: 10)
    assert program.cursor == 4
    assert log == ["record 0", "record 1", "wait 0", "record 2", "wait 1", "record 3", "wait 2", "wait 3"]
    gate.open()
    assert program.launch(gate, window([], []), lambda operator: operator.flops)
    assert program.state.logits is not None


def test_an_operator_that_breaks_leaves_the_cursor_on_it() -> None:
    def fail() -> None:
        raise RuntimeError("broken")

    program = Program([Operator("a", lambda: None, True, 0), Operator("b", fail, True, 0)], state=None)  # type: ignore[arg-type]
    try:
        program.run(Gate())
    except RuntimeError:
        assert program.cursor == 1
    else:
        raise AssertionError("the failure was swallowed")
