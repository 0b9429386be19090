"""One record per preemption: a line of JSON and Prometheus counters."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

from prometheus_client import Counter, Gauge, Histogram

from engine.core.clock import NS_PER_S

BUCKETS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)


@dataclass(frozen=True, slots=True)
class Preemption:
    """A request that ran before less urgent work that had begun.

    asked_at_ns: its arrival, or the end of the preemption that it had to wait for. started_at_ns: the other work
    stood. ended_at_ns: the other work went on. depth: how many prefills stood, this one's victim included.
    boundary: the last module that ran before, or "step" between steps.
    """

    request_id: str
    granularity: str
    boundary: str
    depth: int
    asked_at_ns: int
    started_at_ns: int
    ended_at_ns: int
    failed: bool = False


class NestingLog:
    """Writes preemptions to a file, if one is given, and counts them.

    The counters are seen in the server's /metrics where PROMETHEUS_MULTIPROC_DIR is set, since the scheduler is not in
    the process that answers.
    """

    def __init__(self, path: str | None) -> None:
        self._file: TextIO | None = Path(path).open("a", encoding="utf-8", buffering=1) if path else None  # noqa: SIM115
        self._preemptions = Counter("flowprefill_preemptions", "Prefills that ran before begun, less urgent work")
        self._failed = Counter("flowprefill_failed_preemptions", "Preempting prefills that ended in an error")
        self._blocking = Histogram(
            "flowprefill_blocking_seconds", "From asking for a preemption to the start of it", buckets=BUCKETS_S
        )
        self._depth = Gauge(
            "flowprefill_preempted_prefills", "Prefills that stand preempted", multiprocess_mode="livesum"
        )

    def depth(self, depth: int) -> None:
        """So many prefills stand now."""
        self._depth.set(depth)

    def add(self, preemption: Preemption) -> None:
        """Count and write."""
        self._preemptions.inc()
        if preemption.failed:
            self._failed.inc()
        self._blocking.observe(max(0, preemption.started_at_ns - preemption.asked_at_ns) / NS_PER_S)
        if self._file is not None:
            self._file.write(json.dumps(asdict(preemption)) + "\n")
