"""What a task holds at each boundary, counted on its tensors, against what the scheduler reserves before it starts."""

import pytest
import torch

from bench.gpu_check.memory import state_bytes
from engine.core.batch import Sequence, Task, TaskKind
from engine.model.activation import activation_bytes
from engine.model.granularity import Granularity
from engine.torch_backend.gate import Gate
from tests.torch_backend.engine_run import new_cache, plan, prompt
from tests.torch_backend.families import Family

TASKS = {
    "one prompt": (Sequence("a", 0, 40),),
    "a chunk": (Sequence("a", 16, 20, last=False),),
    "a batch": (Sequence("a", 8, 32), Sequence("b", 0, 21), Sequence("c", 0, 3)),
}


@pytest.mark.parametrize("shares", TASKS.values(), ids=TASKS)
@pytest.mark.parametrize("granularity", [Granularity.OPERATOR, Granularity.TILE])
def test_the_worst_boundary_is_what_is_reserved(
    family: Family, granularity: Granularity, shares: tuple[Sequence, ...]
) -> None:
    model, tokens = family.model, {name: prompt(40) for name in "abc"}
    cache = new_cache(model)
    for share in shares:
        cache.allocate(share.request_id, 40)
    program, gate = plan(model, cache, shares, tokens, granularity), Gate()
    held = []
    with torch.inference_mode():
        for index in range(len(program.operators)):
            gate.stop_at(index, now_ns=0)
            assert not program.run(gate)
            held.append(state_bytes(program.state, model.rope))
    reserved = activation_bytes(model.shape, Task(0, TaskKind.PREFILL, shares), model.dtype.itemsize)
    assert 0.95 * reserved <= max(held) <= reserved
