import numpy as np
import pytest

from engine.core.batch import Sequence, Task, TaskKind
from engine.scheduling.predictors.sampled_curve import RangeError
from engine.simulation.task_progress import Stop, TaskProgress
from engine.simulation.timed_program import TimedProgram

TASK = Task(3, TaskKind.PREFILL, (Sequence("A", 0, 10),))


def progress(times_ns: list[float], boundary: list[bool] | None = None, continuous: bool = False) -> TaskProgress:
    seconds = np.array(times_ns) / 1e9
    where = np.ones(len(seconds), dtype=bool) if boundary is None else np.array(boundary)
    program = TimedProgram(seconds, where, continuous)
    return TaskProgress.of(TASK, program, seconds)


@pytest.mark.parametrize(
    ("asked_ns", "stop"),
    [
        (0, Stop(0, 0)),
        (1, Stop(1, 10)),
        (10, Stop(1, 10)),  # the next operator begins at this very instant: it does not
        (11, Stop(2, 30)),
        (30, Stop(2, 30)),
        (31, None),  # the last operator executes: the end comes first
        (60, None),
        (99, None),
    ],
)
def test_it_stops_before_the_next_operator(asked_ns: int, stop: Stop | None) -> None:
    assert progress([10, 20, 30]).stop_from(asked_ns) == stop


@pytest.mark.parametrize(("asked_ns", "stop"), [(0, Stop(2, 30)), (30, Stop(2, 30)), (31, Stop(4, 100)), (101, None)])
def test_it_stops_at_boundaries_only(asked_ns: int, stop: Stop | None) -> None:
    boundary = [False, False, True, False, True]
    assert progress([10, 20, 30, 40, 50], boundary).stop_from(asked_ns) == stop


def test_without_boundaries_it_runs_to_its_end() -> None:
    assert progress([10, 20], [False, False]).stop_from(0) is None


def test_a_resumed_task_goes_on_from_its_cursor() -> None:
    task = progress([10, 20, 30])
    task.go_to(Stop(1, 10))
    assert task.left_ns == 50
    assert task.stop_from(10) == Stop(1, 10)
    assert task.stop_from(11) == Stop(2, 30)


def test_a_continuous_task_stops_where_it_is_asked() -> None:
    task = progress([100], continuous=True)
    assert task.stop_from(37) == Stop(0, 37)
    assert task.stop_from(100) is None
    task.go_to(Stop(0, 37))
    assert (task.left_ns, task.stop_from(38)) == (63, Stop(0, 38))


def test_where_the_next_operator_begins() -> None:
    task = progress([10, 20, 30], [False, False, False])
    assert [task.next_operator_ns(at) for at in (0, 1, 10, 11, 30, 31, 60)] == [0, 10, 10, 30, 30, 60, 60]


def test_times_are_rounded_as_sums_so_that_nothing_is_lost() -> None:
    task = progress([0.4] * 1000)
    assert task.total_ns == 400


@pytest.mark.parametrize("times_ns", [[], [0.0], [1.0, -1.0], [1.0, float("nan")], [float("inf")]])
def test_times_that_make_no_sense_are_refused(times_ns: list[float]) -> None:
    with pytest.raises(ValueError, match="task 3"):
        progress(times_ns)


def test_as_many_boundaries_as_operators() -> None:
    with pytest.raises(ValueError, match="task 3"):
        progress([1.0, 2.0], [True])


def test_a_task_of_centuries_is_refused_and_does_not_wrap_round() -> None:
    with pytest.raises(RangeError, match=r"task 3 would take longer than any clock counts: 1e\+13 s"):
        progress([1e22])
