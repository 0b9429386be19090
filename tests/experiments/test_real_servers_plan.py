"""What a plan keeps of earlier runs."""

from pathlib import Path

import pytest

from harness.experiments.real_servers_plan import PlacedPoint, Plan, Server, read_plan, write_plan
from harness.measurement.store import StoreError


def server(system: str, chunk: int | None, capacity: float | None, chosen: bool = True) -> Server:
    return Server(system, system, "fcfs", chunk, "file", capacity, capacity, 1.0, chosen, "")


def place(point: str, system: str, chunk: int | None, capacity: float, pilot: bool = False) -> PlacedPoint:
    return PlacedPoint(point, system, chunk, pilot, 0.8, capacity)


def test_a_run_of_one_system_keeps_those_of_the_others() -> None:
    before = Plan().with_more([server("a", 1, 5.0)], [place("a1", "a", 1, 5.0)], 10)
    after = before.with_more([server("b", 1, 6.0)], [place("b1", "b", 1, 6.0)], 10)
    assert [one.point for one in after.current()] == ["a1", "b1"]


def test_points_of_an_older_calibration_or_of_the_chunk_size_that_lost_are_left_out() -> None:
    plan = Plan().with_more(
        [server("a", 1, 5.0), server("a", 2, 4.0, chosen=False)],
        [
            place("old", "a", 1, 4.9),
            place("new", "a", 1, 5.0),
            place("lost", "a", 2, 4.0),
            place("tried", "a", 2, 4.0, pilot=True),
        ],
        10,
    )
    assert [one.point for one in plan.current()] == ["new", "tried"]


def test_it_is_read_as_it_was_written_and_a_damaged_one_is_told(tmp_path: Path) -> None:
    plan = Plan().with_more([server("a", None, None)], [place("a1", "a", None, 5.0)], 10)
    write_plan(tmp_path, plan)
    assert read_plan(tmp_path) == plan
    assert read_plan(tmp_path / "elsewhere") == Plan()
    (tmp_path / "plan.json").write_text("{")
    with pytest.raises(StoreError, match="damaged"):
        read_plan(tmp_path)
