"""What a roofline needs to know of an accelerator. The numbers live in conf/device, each with its source."""

import math
from dataclasses import dataclass, fields

_MAY_BE_ZERO = (
    "launch_s",
    "step_overhead_s",
    "half_layer_sync_s",
    "allreduce_latency_s",
    "reserved_bytes",
)
_SHARES = ("projection_efficiency", "attention_efficiency", "expert_efficiency", "memory_share")


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """One accelerator, and the links to its neighbours.

    peak_flops: multiplications and additions a second, dense, in the model's number format.
    bandwidth_bytes_s: of its memory.
    memory_bytes: all of its memory. memory_share: part of it that serving may use. reserved_bytes: what serving needs
        besides weights and KV (activations, workspaces); the rest of the share is the KV pool.
    projection_efficiency, attention_efficiency, expert_efficiency: parts of `peak_flops` reached by the matrix products
        over all rows (projections, MLP, router, head), by attention, and by the experts' grouped products.
    launch_s: added to every operator, from the end of the one before to its own start.
    tile_rows, expert_tile_rows: rows are computed in multiples of this; an expert's rows in multiples of the second.
    compute_units: attention computes this many blocks of `tile_rows` query rows at a time.
    step_overhead_s: of every task, whatever its size: scheduling, preparing inputs, reading the tokens back.
    half_layer_sync_s: FlowPrefill as released waits for the device after each half of a layer (where it stops between
        layers only: after each layer); a `RooflineDevice` charges it where told to: rivals do not wait.
    allreduce_latency_s, allreduce_bandwidth_bytes_s: of a sum over the ranks of a tensor-parallel group; the bandwidth
        is what a rank sends, one way. Used with more than one rank only.
    Raises ValueError for a value that is out of range.
    """

    peak_flops: float
    bandwidth_bytes_s: float
    memory_bytes: int
    memory_share: float
    reserved_bytes: int
    projection_efficiency: float
    attention_efficiency: float
    expert_efficiency: float
    launch_s: float
    tile_rows: int
    expert_tile_rows: int
    compute_units: int
    step_overhead_s: float
    allreduce_latency_s: float
    allreduce_bandwidth_bytes_s: float
    half_layer_sync_s: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            lowest = "0 or more" if field.name in _MAY_BE_ZERO else "above 0"
            if not math.isfinite(value) or value < 0 or (value == 0 and field.name not in _MAY_BE_ZERO):
                raise ValueError(f"accelerator {field.name} must be {lowest}, got {value}")
        for name in _SHARES:
            if getattr(self, name) > 1:
                raise ValueError(f"accelerator {name} must be at most 1, got {getattr(self, name)}")
