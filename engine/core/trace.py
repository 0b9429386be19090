"""A workload: a trace as published, and the requests planned from it."""

from collections.abc import Sequence
from dataclasses import dataclass

from engine.core.slo import SLO


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One request of a trace. arrival_s: seconds after the trace's first row; lengths in trace tokens."""

    arrival_s: float
    input_tokens: int
    output_tokens: int
    task: str = ""


@dataclass(frozen=True, slots=True)
class Trace:
    """Rows in order of arrival, and the name figures use."""

    name: str
    rows: tuple[TraceRow, ...]

    @property
    def span_s(self) -> float:
        """Seconds from the first to the last arrival; 0 for fewer than two rows."""
        return self.rows[-1].arrival_s - self.rows[0].arrival_s if len(self.rows) > 1 else 0.0


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """One request to send, everything about it decided before the clock starts.

    due_ns: instant to send it, in nanoseconds after the start of the run.
    token_ids: the prompt; it may be drawn at each look (workloads.prompts).
    """

    request_id: str
    due_ns: int
    token_ids: Sequence[int]
    max_tokens: int
    slo: SLO
    task: str = ""
