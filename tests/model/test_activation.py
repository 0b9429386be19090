from dataclasses import replace

from engine.core.batch import Sequence, Task, TaskKind
from engine.model.activation import activation_bytes
from tests.model.tiny_shapes import DENSE, MOE


def task(*rows: int) -> Task:
    return Task(0, TaskKind.PREFILL, tuple(Sequence(str(i), 100, count) for i, count in enumerate(rows)))


def test_a_dense_prompt_keeps_its_residual_and_its_gated_product() -> None:
    # A row: 8 + 12 numbers of 2 bytes, two indices of 8; a sequence: one index.
    assert activation_bytes(DENSE, task(3), 2) == 3 * (20 * 2 + 16) + 8


def test_queries_count_where_they_are_larger_than_the_product() -> None:
    assert activation_bytes(replace(DENSE, heads=5), task(3), 4) == 3 * (28 * 4 + 16) + 8


def test_a_batch_keeps_cosines_and_sines_of_its_own() -> None:
    assert activation_bytes(DENSE, task(2, 1), 2) == 3 * (24 * 2 + 16) + 2 * 8


def test_a_mixture_keeps_the_normed_row_and_each_chosen_expert() -> None:
    # Between router and experts a row has 8 + 8 numbers, and a weight and an index for each of its 2 experts.
    assert activation_bytes(MOE, task(3), 2) == 3 * ((16 + 2) * 2 + 2 * 8 + 16) + 8
    # 40 queries outweigh them.
    assert activation_bytes(replace(MOE, heads=10), task(3), 2) == 3 * (48 * 2 + 16) + 8
