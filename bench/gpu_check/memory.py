"""Part: what a task holds at each boundary, against what the scheduler reserves for it."""

import torch

from bench.gpu_check.report import Report
from bench.gpu_check.scale import Setting
from bench.gpu_check.stage import Stage, prompt
from engine.core.batch import Sequence as Share
from engine.core.batch import Task, TaskKind
from engine.model.activation import activation_bytes
from engine.torch_backend.gate import Gate
from engine.torch_backend.models.decoder import Decoder
from engine.torch_backend.task_state import TaskState

TOLERANCE = 0.05


def state_bytes(state: TaskState, tables: tuple[torch.Tensor, torch.Tensor]) -> int:
    """Bytes of the memory a state's tensors own, each piece once; `tables` of the model are not its own."""
    tensors = [getattr(state, name) for name in TaskState.__slots__ if name not in ("segments", "cache")]
    storages = [tensor.untyped_storage() for tensor in tensors if isinstance(tensor, torch.Tensor)]
    own = {storage.data_ptr(): storage.nbytes() for storage in storages}
    return sum(own.values()) - sum(own.get(table.untyped_storage().data_ptr(), 0) for table in tables)


def check_memory(setting: Setting, report: Report, model: Decoder) -> None:
    cuda = model.device.type == "cuda"
    for tokens in setting.scale.memory_lengths:
        for sequences in (1, 4):
            stage = Stage(model, tokens + 16 * sequences)
            share = tokens // sequences
            shares = [Share(f"r{i}", 0, share) for i in range(sequences)]
            ids = {one.request_id: prompt(share, model.shape.vocab_size) for one in shares}
            for one in shares:
                stage.cache.allocate(one.request_id, share)
            reserved = activation_bytes(model.shape, Task(0, TaskKind.PREFILL, tuple(shares)), model.dtype.itemsize)
            before = _allocated(model)
            program, gate = stage.program(shares, ids), Gate()
            worst = 0
            for index in range(len(program.operators)):
                gate.stop_at(index, now_ns=0)
                stage.run(program, gate)
                held = _allocated(model) - before if cuda else state_bytes(program.state, model.rope)
                worst = max(worst, held)
            report.row(
                "memory", tokens=tokens, sequences=sequences, reserved_bytes=reserved, worst_boundary_bytes=worst
            )
            off = worst / reserved - 1
            what = f"{tokens} tokens in {sequences}: worst boundary over what is reserved"
            report.must(what, abs(off) <= TOLERANCE, f"within {TOLERANCE:.0%}", worst / reserved)
            del program
            if cuda:
                torch.cuda.reset_peak_memory_stats(model.device)
                stage.run(stage.program(shares, ids))
                peak = torch.cuda.max_memory_allocated(model.device) - before
                report.number(f"{tokens} tokens in {sequences}: peak inside operators", peak / 2**20, "MiB")


def _allocated(model: Decoder) -> int:
    if model.device.type != "cuda":
        return 0
    torch.cuda.synchronize(model.device)
    return torch.cuda.memory_allocated(model.device)
