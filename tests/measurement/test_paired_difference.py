"""Differences by hand, and an interval that knows what is paired."""

from collections.abc import Sequence

from engine.core.record import RequestRecord, Status
from harness.measurement.paired_difference import paired_difference


def run(outcomes: Sequence[bool], tasks: Sequence[str] = ()) -> list[RequestRecord]:
    return [
        RequestRecord(
            request_id=f"r{i:04d}", task=tasks[i] if tasks else "text", prompt_tokens=8, max_tokens=1, ttft_slo_ns=100,
            tbt_slo_ns=None, due_at_ns=0, sent_at_ns=1, first_token_at_ns=50 if met else 500,
            last_token_at_ns=500, output_tokens=1, status=Status.OK,
        )
        for i, met in enumerate(outcomes)
    ]  # fmt: skip


def test_the_difference_is_of_the_means_over_common_seeds() -> None:
    first = {0: run([True, True]), 1: run([True, False]), 2: run([True, True])}
    second = {0: run([False, True]), 1: run([False, False])}
    found = paired_difference(first, second, rows=2)
    assert found is not None
    assert (found.first, found.second, found.difference, found.seeds) == (0.75, 0.25, 0.5, 2)


def test_equal_outcomes_row_by_row_leave_no_interval_however_they_vary() -> None:
    """Unpaired, half of the rows missed would give a wide one."""
    outcomes = [i % 2 == 0 for i in range(40)]
    found = paired_difference({0: run(outcomes), 1: run(outcomes)}, {0: run(outcomes), 1: run(outcomes)}, rows=40)
    assert found is not None
    assert (found.difference, found.low, found.high) == (0, 0, 0)


def test_runs_of_other_lengths_are_paired_by_the_row_of_the_trace() -> None:
    """Row 0 is met by both, row 1 by the first only: rows are drawn together with all their repetitions."""
    found = paired_difference({0: run([True, True])}, {0: run([True, False, True, False])}, rows=2)
    assert found is not None
    assert found.difference == 0.5
    assert (found.low, found.high) == (0, 1)


def test_a_class_counts_its_own_requests() -> None:
    tasks = ["text", "file"]
    found = paired_difference({0: run([True, False], tasks)}, {0: run([True, True], tasks)}, 2, "file")
    assert found is not None
    assert found.difference == -1
    assert paired_difference({0: run([True], tasks)}, {0: run([True], tasks)}, 2, "file") is None


def test_without_a_common_seed_there_is_none() -> None:
    assert paired_difference({0: run([True])}, {1: run([True])}, rows=1) is None


def test_it_is_the_same_every_time() -> None:
    first, second = {0: run([True, False, True])}, {0: run([False, False, True])}
    assert paired_difference(first, second, 3) == paired_difference(first, second, 3)
