"""Settings of the torch executor."""

from dataclasses import dataclass, field
from functools import partial

import torch

from engine.model.granularity import Granularity, TileSettings
from engine.torch_backend.gate import LaunchWindow
from engine.torch_backend.operator_times import OperatorTimes


@dataclass(frozen=True, slots=True)
class ExecutorSettings:
    """How tasks execute.

    granularity: where they may stop. tiles: how `tile` splits operators.
    kv_blocks, block_tokens: size of the KV cache: so many blocks of so many positions.
    threads: torch's threads inside an operator.
    launch_bound_ns: on CUDA the host launches ahead while the operators in flight are predicted to end within the
        bound; 0 = it waits for each. device_flops_per_s: speed they are predicted by until they have run once.
        Neither is used on a CPU.
    """

    granularity: Granularity = Granularity.OPERATOR
    tiles: TileSettings = field(default_factory=TileSettings)
    kv_blocks: int = 2048
    block_tokens: int = 16
    threads: int = 1
    launch_bound_ns: int = 500_000
    device_flops_per_s: float = 2e14

    def __post_init__(self) -> None:
        object.__setattr__(self, "granularity", Granularity(self.granularity))
        for name in ("kv_blocks", "block_tokens", "threads"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.launch_bound_ns < 0:
            raise ValueError(f"launch_bound_ns must be at least 0, got {self.launch_bound_ns}")
        if self.device_flops_per_s <= 0:
            raise ValueError(f"device_flops_per_s must be above 0, got {self.device_flops_per_s}")


def new_window(device: torch.device, settings: ExecutorSettings, times: OperatorTimes) -> LaunchWindow | None:
    """What bounds the work launched ahead in one stretch of a task; None on a CPU, which runs what it is given."""
    if device.type == "cpu":
        return None
    return LaunchWindow(settings.launch_bound_ns, partial(torch.cuda.Event, enable_timing=True), times.learn)
