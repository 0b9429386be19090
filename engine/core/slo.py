"""Latency objectives of one request."""

from dataclasses import dataclass

from engine.core.clock import NS_PER_S

NO_SLO_DUE_NS = 30 * NS_PER_S
"""A request without a TTFT SLO is ordered as if it were due this long after its arrival."""


@dataclass(frozen=True, slots=True)
class SLO:
    """Objectives in nanoseconds; None = the request states none.

    ttft_ns: time to first token, from the request's arrival.
    tbt_ns: time between tokens after the first.
    """

    ttft_ns: int | None = None
    tbt_ns: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("ttft_ns", self.ttft_ns), ("tbt_ns", self.tbt_ns)):
            if value is not None and value <= 0:
                raise ValueError(f"SLO {name} must be above 0, got {value}")
