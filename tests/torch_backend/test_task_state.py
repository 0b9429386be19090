import pytest
import torch

from engine.core.batch import Sequence, Task, TaskKind
from engine.model.activation import activation_bytes
from engine.model.segments import segments_of
from engine.torch_backend.kv_cache import KVCache
from engine.torch_backend.models.decoder import Decoder
from engine.torch_backend.models.llama import Llama
from engine.torch_backend.task_state import TaskState, build_state
from tests.torch_backend.engine_run import new_cache
from tests.torch_backend.families import Family


def live_bytes(state: TaskState) -> int:
    """Bytes of the memory that the state's tensors own, each piece counted once."""
    tensors = [getattr(state, name) for name in TaskState.__slots__ if name not in ("segments", "cache")]
    storages = [tensor.untyped_storage() for tensor in tensors if isinstance(tensor, torch.Tensor)]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def state_of(model: Decoder, cache: KVCache, *sequences: Sequence) -> tuple[Task, TaskState]:
    task = Task(0, TaskKind.PREFILL, sequences)
    tokens = [0] * task.new_tokens
    return task, build_state(model.shape, cache, model.rope, segments_of(task), tokens)


def test_a_batch_holds_the_bytes_that_are_reserved_for_it(family: Family) -> None:
    model = family.model
    cache = new_cache(model)
    cache.allocate("a", 30)
    cache.allocate("b", 20)
    task, state = state_of(model, cache, Sequence("a", 10, 20), Sequence("b", 0, 20))
    assert live_bytes(state) == activation_bytes(model.shape, task, 4)


def test_a_prompt_in_neighbouring_blocks_needs_no_slots(tiny: Llama) -> None:
    cache = new_cache(tiny)
    cache.allocate("a", 40)
    task, state = state_of(tiny, cache, Sequence("a", 0, 40))
    rope_tables = sum(table.nbytes for table in tiny.rope)  # the cosines and sines are views of them
    assert live_bytes(state) - rope_tables == activation_bytes(tiny.shape, task, 4) - 40 * 8


def test_a_position_past_the_model_is_refused(tiny: Llama) -> None:
    cache = new_cache(tiny, blocks=200)
    cache.allocate("a", 1030)
    with pytest.raises(ValueError, match="request a reaches position 1030, model cpu_tiny has 1024"):
        state_of(tiny, cache, Sequence("a", 1000, 30))
