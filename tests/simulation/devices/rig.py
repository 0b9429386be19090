"""Tasks, a tiny model and round numbers, for times that can be reckoned by hand."""

from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from engine.core.batch import Sequence, Task, TaskKind
from engine.model.shape import ModelShape
from engine.simulation.accelerators import Accelerator
from engine.simulation.device import DeviceModel

ROOT = Path(__file__).parents[3]

SHAPE = ModelShape(
    name="toy",
    vocab_size=32,
    hidden_size=8,
    intermediate_size=16,
    layers=2,
    heads=2,
    kv_heads=2,
    head_dim=4,
    norm_eps=1e-5,
    rope_theta=1e4,
    rope_scaling=None,
    max_positions=1024,
    tied_embeddings=False,
    eos_token_ids=(),
    dtype="float16",
)
FAST = 1e15
"""A peak or bandwidth that leaves the other one to bind."""


def accelerator(**changes: Any) -> Accelerator:
    """Free of every overhead unless told otherwise."""
    given: dict[str, Any] = {
        "peak_flops": FAST,
        "bandwidth_bytes_s": FAST,
        "memory_bytes": 10_000,
        "memory_share": 1.0,
        "reserved_bytes": 0,
        "projection_efficiency": 1.0,
        "attention_efficiency": 1.0,
        "expert_efficiency": 1.0,
        "launch_s": 0.0,
        "tile_rows": 1,
        "expert_tile_rows": 1,
        "compute_units": 1,
        "step_overhead_s": 0.0,
        "allreduce_latency_s": 0.0,
        "allreduce_bandwidth_bytes_s": FAST,
    }
    return Accelerator(**(given | changes))


def task(*lengths: tuple[int, int], last: bool = True, kind: TaskKind = TaskKind.PREFILL) -> Task:
    """A task of (new_tokens, context_tokens) sequences."""
    return Task(0, kind, tuple(Sequence(f"r{i}", context, new, last) for i, (new, context) in enumerate(lengths)))


def total_s(device: DeviceModel, given: Task) -> float:
    return float(device.program(given).seconds.sum())


def device_settings(name: str) -> dict[str, Any]:
    """conf/device/<name>.yaml."""
    content = OmegaConf.to_container(OmegaConf.load(ROOT / "conf" / "device" / f"{name}.yaml"))
    assert isinstance(content, dict)
    return {str(key): value for key, value in content.items()}


def committed(name: str) -> Accelerator:
    """The accelerator of conf/device/<name>.yaml."""
    return Accelerator(**device_settings(name)["simulation"]["accelerator"])
