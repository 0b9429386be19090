"""Settings of the torch executor."""

from dataclasses import dataclass, field

import torch

from engine.core.clock import NS_PER_S
from engine.model.granularity import Granularity, TileSettings
from engine.torch_backend.gate import LaunchWindow
from engine.torch_backend.program import Operator


@dataclass(frozen=True, slots=True)
class ExecutorSettings:
    """How tasks execute.

    granularity: where they may stop. tiles: how `tile` splits operators.
    kv_blocks, block_tokens: size of the KV cache: so many blocks of so many positions.
    threads: torch's threads inside an operator.
    launch_bound_ns, device_flops_per_s: on CUDA the host launches ahead while the operators in flight are predicted
        to take less than the bound, each as its operations at this speed. Not used on a CPU.
    """

    granularity: Granularity = Granularity.OPERATOR
    tiles: TileSettings = field(default_factory=TileSettings)
    kv_blocks: int = 2048
    block_tokens: int = 16
    threads: int = 1
    launch_bound_ns: int = 1_000_000
    device_flops_per_s: float = 2e14

    def __post_init__(self) -> None:
        object.__setattr__(self, "granularity", Granularity(self.granularity))
        for name in ("kv_blocks", "block_tokens", "threads", "launch_bound_ns"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.device_flops_per_s <= 0:
            raise ValueError(f"device_flops_per_s must be above 0, got {self.device_flops_per_s}")

    def predicted_ns(self, operator: Operator) -> int:
        """How long an operator is taken to be in flight on a device."""
        return int(operator.flops / self.device_flops_per_s * NS_PER_S)


def new_window(device: torch.device, settings: ExecutorSettings) -> LaunchWindow | None:
    """What bounds the work launched ahead in one stretch of a task; None on a CPU, which runs what it is given."""
    return None if device.type == "cpu" else LaunchWindow(settings.launch_bound_ns, torch.cuda.Event)
