"""What the scheduler counts between two resets of its report."""

from collections import deque
from dataclasses import dataclass, field, fields

from engine.core.record import EngineReport

KEPT_SAMPLES = 200_000
"""Samples kept of each kind; older ones fall out, so that a server can run for months."""


def _samples() -> deque[int]:
    return deque(maxlen=KEPT_SAMPLES)


@dataclass(slots=True)
class Counters:
    """The fields of EngineReport, growing."""

    decisions: int = 0
    other_decisions: int = 0
    preemptions: int = 0
    rejected: int = 0
    completed_requests: int = 0
    failed_requests: int = 0
    cancelled_requests: int = 0
    prefill_tokens: int = 0
    decode_tokens: int = 0
    executed_ns: int = 0
    scheduling_ns: int = 0
    kv_sent: int = 0
    kv_received: int = 0
    blocking_ns: deque[int] = field(default_factory=_samples)
    arrival_to_decision_ns: deque[int] = field(default_factory=_samples)

    def report(self, predictions_clamped: int) -> EngineReport:
        """A frozen copy. predictions_clamped: since the last reset."""
        counted = {each.name: getattr(self, each.name) for each in fields(self)}
        samples = {name: tuple(value) for name, value in counted.items() if isinstance(value, deque)}
        return EngineReport(**{**counted, **samples}, predictions_clamped=predictions_clamped)
