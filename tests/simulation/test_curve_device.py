import pytest

from engine.core.batch import Sequence, Task, TaskKind
from engine.simulation.devices.curve import CurveDevice

DEVICE = CurveDevice(1.0, 0.1, 0.01)


def seconds(*lengths: tuple[int, int], kind: TaskKind = TaskKind.PREFILL) -> float:
    sequences = tuple(Sequence(f"r{i}", context, new) for i, (new, context) in enumerate(lengths))
    return DEVICE.program(Task(0, kind, sequences)).seconds.sum()


def test_a_prefill_takes_what_the_curve_says() -> None:
    assert seconds((10, 0)) == pytest.approx(1 + 1 + 1)


def test_chunks_share_the_square_and_each_pays_the_constant() -> None:
    assert seconds((4, 0)) + seconds((6, 4)) == pytest.approx(seconds((10, 0)) + 1)


def test_a_batch_pays_the_constant_once() -> None:
    assert seconds((10, 0), (5, 5)) == pytest.approx(seconds((10, 0)) + seconds((5, 5)) - 1)


def test_a_decode_step_is_one_token_a_sequence() -> None:
    assert seconds((1, 9), kind=TaskKind.DECODE_STEP) == pytest.approx(1 + 0.1 + 0.01 * 19)


def test_it_may_stop_anywhere() -> None:
    assert DEVICE.program(Task(0, TaskKind.PREFILL, (Sequence("a", 0, 5),))).continuous


def test_it_knows_nothing_of_sending() -> None:
    with pytest.raises(ValueError, match="sending KV"):
        seconds((1, 0), kind=TaskKind.KV_SEND)
