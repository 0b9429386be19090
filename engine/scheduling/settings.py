"""Limits the scheduler keeps to."""

from dataclasses import dataclass
from typing import Literal

from engine.scheduling.slack import BatchDeadline

DecodeOrder = Literal["last", "by_deadline"]
"""When decode steps run: when no prefill can, or as items with deadlines of their own (decode_steps.py)."""


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """kv_blocks, block_tokens: the KV pool, in blocks of so many positions.

    activation_capacity_bytes: what the executing and the preempted tasks may hold together.
    max_context_tokens: most tokens of one request, prompt and output together.
    max_preempted: most preempted prefills at one time; 0 = none is ever preempted.
    decode_reserve: with decode_order by_deadline, the share of its TBT SLO at which a step becomes urgent.
    """

    kv_blocks: int
    block_tokens: int
    activation_capacity_bytes: int
    max_context_tokens: int
    max_preempted: int = 64
    max_decode_batch: int = 256
    batch_deadline: BatchDeadline = "earliest_live"
    decode_order: DecodeOrder = "last"
    decode_reserve: float = 0.25

    def __post_init__(self) -> None:
        least = {"max_preempted": 0, "max_context_tokens": 2}
        names = ("kv_blocks", "block_tokens", "activation_capacity_bytes", "max_decode_batch", *least)
        for name in names:
            if getattr(self, name) < least.get(name, 1):
                raise ValueError(f"{name} must be at least {least.get(name, 1)}, got {getattr(self, name)}")
        if self.batch_deadline not in ("head", "earliest_live"):
            raise ValueError(f"batch_deadline must be head or earliest_live, got {self.batch_deadline!r}")
        if self.decode_order not in ("last", "by_deadline"):
            raise ValueError(f"decode_order must be last or by_deadline, got {self.decode_order!r}")
        if not 0 <= self.decode_reserve <= 1:
            raise ValueError(f"decode_reserve must be between 0 and 1, got {self.decode_reserve}")
