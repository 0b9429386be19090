"""Jobs in processes of their own. Functions of this module are found again by the processes, which import it."""

import os

from harness.experiments.side_by_side import Died, side_by_side


def square_or_die(number: int) -> int:
    if number == 3:
        os._exit(1)  # as if killed
    return number * number


def test_a_process_that_dies_costs_its_own_job_only() -> None:
    found = dict(side_by_side(square_or_die, [1, 2, 3, 4], 2, lambda: False))
    assert isinstance(found.pop(3), Died)
    assert found == {1: 1, 2: 4, 4: 16}


def test_once_stopped_nothing_begins() -> None:
    assert list(side_by_side(square_or_die, [1, 2], 2, lambda: True)) == []
