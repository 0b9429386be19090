"""Limits the scheduler keeps to."""

from dataclasses import dataclass

from engine.scheduling.slack import BatchDeadline


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """kv_blocks, block_tokens: the KV pool, in blocks of so many positions.

    activation_capacity_bytes: what the executing and the preempted tasks may hold together.
    max_context_tokens: most tokens of one request, prompt and output together.
    max_preempted: most preempted prefills at one time; 0 = none is ever preempted.
    """

    kv_blocks: int
    block_tokens: int
    activation_capacity_bytes: int
    max_context_tokens: int
    max_preempted: int = 64
    max_decode_batch: int = 256
    batch_deadline: BatchDeadline = "earliest_live"

    def __post_init__(self) -> None:
        least = {"max_preempted": 0, "max_context_tokens": 2}
        names = ("kv_blocks", "block_tokens", "activation_capacity_bytes", "max_decode_batch", *least)
        for name in names:
            if getattr(self, name) < least.get(name, 1):
                raise ValueError(f"{name} must be at least {least.get(name, 1)}, got {getattr(self, name)}")
        if self.batch_deadline not in ("head", "earliest_live"):
            raise ValueError(f"batch_deadline must be head or earliest_live, got {self.batch_deadline!r}")
