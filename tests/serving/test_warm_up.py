"""The prefills before the first request."""

import pytest

from engine.serving.warm_up import WarmUpError, warm_up, warm_up_lengths
from engine.torch_backend.clock import MonotonicClock
from engine.torch_backend.event_queue import EventQueue
from engine.torch_backend.executor import TorchExecutor
from engine.torch_backend.models.catalogue import load_model
from engine.torch_backend.settings import ExecutorSettings


@pytest.mark.parametrize("most", [1, 2, 16, 17, 100, 1000, 4096, 16384])
def test_lengths_grow_up_to_what_fits(most: int) -> None:
    lengths = warm_up_lengths(most)
    assert list(lengths) == sorted(set(lengths))
    assert 1 <= lengths[0] <= 16
    assert lengths[-1] == min(most, 4096)
    assert len(lengths) <= 12


def test_every_length_is_timed_and_no_kv_stays_held() -> None:
    events = EventQueue()
    executor = TorchExecutor(load_model("cpu_tiny"), ExecutorSettings(kv_blocks=20), MonotonicClock(), events.put)
    try:
        samples = warm_up(executor, events, (8, 32), vocab_size=512)
        assert [(sample.new_tokens, sample.context_tokens) for sample in samples] == [(8, 0), (32, 0)]
        assert all(sample.seconds > 0 for sample in samples)
        assert executor.cache.free_blocks == 20
        with pytest.raises(WarmUpError, match="a prefill of 2000 tokens failed"):
            warm_up(executor, events, (2000,), vocab_size=512)
    finally:
        executor.close()


def test_the_time_is_bounded() -> None:
    events = EventQueue()
    executor = TorchExecutor(load_model("cpu_tiny"), ExecutorSettings(), MonotonicClock(), events.put)
    try:
        assert len(warm_up(executor, events, (8, 16, 24, 32, 40, 48), vocab_size=512, budget_s=0.0)) == 4
    finally:
        executor.close()
