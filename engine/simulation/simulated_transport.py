"""How long KV takes from one instance to another."""

import math
from dataclasses import dataclass

from engine.core.clock import seconds_to_ns


@dataclass(frozen=True, slots=True)
class SimulatedTransport:
    """A transport that each hand-over has to itself. token_bytes: KV of one token, all layers.

    Of a hand-over the sender's time is counted and the receiver's is not: one copies from the other.
    """

    bytes_per_s: float
    delay_s: float
    token_bytes: int

    def __post_init__(self) -> None:
        if not (self.bytes_per_s > 0 and self.token_bytes > 0 and self.delay_s >= 0 and math.isfinite(self.delay_s)):
            raise ValueError(
                f"a KV transport needs bytes_per_s and token_bytes above 0 and a delay_s of 0 or more, got {self}"
            )

    def hand_over_ns(self, tokens: int) -> int:
        """Of the KV of so many tokens."""
        return seconds_to_ns(self.delay_s + tokens * self.token_bytes / self.bytes_per_s)
