"""What the scheduler counts between two resets of its report."""

from collections import deque
from dataclasses import dataclass, field

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
    blocking_ns: deque[int] = field(default_factory=_samples)
    arrival_to_decision_ns: deque[int] = field(default_factory=_samples)

    def report(self) -> EngineReport:
        """A frozen copy."""
        return EngineReport(
            decisions=self.decisions,
            other_decisions=self.other_decisions,
            preemptions=self.preemptions,
            rejected=self.rejected,
            completed_requests=self.completed_requests,
            failed_requests=self.failed_requests,
            cancelled_requests=self.cancelled_requests,
            prefill_tokens=self.prefill_tokens,
            decode_tokens=self.decode_tokens,
            executed_ns=self.executed_ns,
            scheduling_ns=self.scheduling_ns,
            blocking_ns=tuple(self.blocking_ns),
            arrival_to_decision_ns=tuple(self.arrival_to_decision_ns),
        )
