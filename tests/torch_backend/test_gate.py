import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.batch import Sequence
from engine.model.granularity import Granularity
from engine.torch_backend.gate import Gate
from engine.torch_backend.models.llama import Llama
from engine.torch_backend.operator_times import OperatorTimes
from engine.torch_backend.program import Operator, Program
from tests.torch_backend.engine_run import new_cache, plan, prompt
from tests.torch_backend.fake_device import Device, launch_all


def test_a_long_operator_is_followed_when_it_is_about_to_end() -> None:
    device = Device()
    launch_all(device, device.window(100_000), [1_000_000] * 4)
    assert device.launched_at_ns == pytest.approx([0, 900_000, 1_900_000, 2_900_000], abs=9)
    assert device.waits == 0


def test_short_operators_fill_the_bound() -> None:
    device = Device()
    launch_all(device, device.window(100_000), [30_000] * 6)
    # 120 000 ns are in flight after the fourth; each later one goes when less than the bound is left.
    assert device.launched_at_ns == pytest.approx([0, 0, 0, 0, 20_000, 50_000], abs=9)


def test_with_no_bound_each_operator_waits_for_the_one_before() -> None:
    device = Device()
    launch_all(device, device.window(0), [1_000_000, 30_000, 5_000_000])
    assert device.launched_at_ns == [0, 1_000_000, 1_030_000]
    assert device.waits == 2


def test_what_ends_earlier_than_predicted_is_followed_within_a_look() -> None:
    device = Device()
    launch_all(device, device.window(100_000), [400_000] * 3, [1_000_000] * 3)
    assert all(0 <= later - 400_000 * (i + 1) <= 50_000 * (i + 1) for i, later in enumerate(device.launched_at_ns[1:]))


def test_what_ends_later_than_predicted_is_followed_by_one_more_only() -> None:
    device = Device()
    launch_all(device, device.window(100_000), [4_000_000] * 4, [500_000] * 4)
    # 400 000 ns after the start the second goes; the third has to see the first one end.
    assert device.launched_at_ns[1] == pytest.approx(400_000, abs=9)
    assert device.launched_at_ns[2] >= 4_000_000
    assert device.launched_at_ns[3] >= 8_000_000


@given(
    took_ns=st.lists(st.integers(1_000, 3_000_000), min_size=1, max_size=30),
    bound_ns=st.integers(60_000, 2_000_000),
)
def test_never_more_than_the_bound_and_one_operator_is_in_flight_and_the_device_never_idles(
    took_ns: list[int], bound_ns: int
) -> None:
    device = Device()
    launch_all(device, device.window(bound_ns), took_ns)
    for launched_at_ns, took, end_ns in zip(device.launched_at_ns, took_ns, device.ends_ns[1:], strict=True):
        assert end_ns - launched_at_ns < bound_ns + took
    assert device.ends_ns[-1] == sum(took_ns)


def test_operators_are_learnt_from_the_marks_but_the_first() -> None:
    device, learnt = Device(), []
    ahead = device.window(100_000, lambda flops, took_ns: learnt.append((flops, took_ns)))
    launch_all(device, ahead, [1_000_000, 30_000, 5_000_000])
    ahead.drain()
    ahead.drain()
    assert learnt == [(30_000, 30_000), (5_000_000, 5_000_000)]
    assert device.waits == 1


def test_an_operator_is_predicted_by_the_shorter_of_its_last_two_times() -> None:
    times = OperatorTimes(device_flops_per_s=1e12)
    small, large = (Operator("a", lambda: None, True, flops) for flops in (10, 2_000_000_000))
    assert [times.predicted_ns(one) for one in (small, large)] == [10_000, 2_000_000]
    for took_ns in (5_000_000, 3_000_000, 4_000_000):
        times.learn(large.flops, took_ns)
    assert times.predicted_ns(large) == 3_000_000
    times.learn(large.flops, 4_500_000)
    assert times.predicted_ns(large) == 4_000_000
    for flops in range(100, 100 + 4096):
        times.learn(flops, 1)
    assert times.predicted_ns(large) == 2_000_000


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
    device = Device()
    gate, program = Gate(), steps(tiny, Granularity.OPERATOR)
    gate.stop_at(4, now_ns=5)

    def predicted_ns(operator: Operator) -> int:
        device.launch(10_000)
        return 10_000

    assert not program.launch(gate, device.window(1_000_000), predicted_ns)
    assert (program.cursor, len(device.launched_at_ns)) == (4, 4)
    assert device.now_ns == 40_000  # what was launched has ended
    gate.open()
    assert program.launch(gate, device.window(0), predicted_ns)
    assert program.state.logits is not None


def test_a_boundary_without_a_pause_waits_for_nothing(tiny: Llama) -> None:
    """All of a task's launches, with a bound they fit in: the host asks the device for its marks and never stops."""
    device, program = Device(), steps(tiny, Granularity.OPERATOR)

    def predicted_ns(operator: Operator) -> int:
        device.launch(1_000)
        return 1_000

    assert program.launch(Gate(), device.window(10_000_000), predicted_ns)
    assert set(device.launched_at_ns) == {0}
    assert device.waits == 1  # at the end, where the result is wanted


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
