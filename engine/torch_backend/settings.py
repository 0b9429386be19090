"""Settings of the torch executor."""

from dataclasses import dataclass, field

from engine.model.granularity import Granularity, TileSettings


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
