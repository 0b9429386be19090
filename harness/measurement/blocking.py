"""Blocking time: from the instant a pause is asked to the instant execution stops."""

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from engine.core.clock import NS_PER_MS
from harness.measurement.latency import Summary, summarize
from harness.measurement.uncertainty import bootstrap_mean


def blocking_ms(blocking_ns: Sequence[int]) -> Summary:
    """Distribution in milliseconds of one sample per pause asked; all but n are None where none was."""
    return summarize([sample / NS_PER_MS for sample in blocking_ns])


def expected_blocking_ms(interval_s: Sequence[float]) -> float | None:
    """Mean wait for the next check, in ms, of a pause asked at a random instant: sum(t^2) / (2 sum t).

    interval_s: the times between two successive checks of a prefill, in seconds: operator times at
    operator level, layer times at layer level, one whole prefill where there is no check. None of no
    time at all. What is already launched on a device comes on top.
    """
    total = math.fsum(interval_s)
    return None if total <= 0 else 1000 * math.fsum(t * t for t in interval_s) / (2 * total)


@dataclass(frozen=True, slots=True)
class GranularityFacts:
    """What one point of the granularity experiment was: the settings columns of its table.

    chunk_tokens: None without chunking. prompt_tokens: length of the prefills paused; None = of the workload.
    """

    experiment: str
    point: str
    series: str
    granularity: str
    chunk_tokens: int | None
    backend: str
    source: str
    model: str
    device: str
    length_scale: float
    slo_speed_factor: float
    prompt_tokens: int | None
    seed: int


@dataclass(frozen=True, slots=True)
class GranularityMeasurement:
    """What one point of the granularity experiment found.

    blocking_ns: one sample per pause asked.
    prefill_tokens, prefill_s: of the un-preempted prefills, for the throughput.
    check_interval_s: times between successive checks of those prefills, as predicted from operator times; () = unknown.
    """

    blocking_ns: tuple[int, ...]
    prefill_tokens: int
    prefill_s: float
    check_interval_s: tuple[float, ...] = ()


GRANULARITY_COLUMNS = (
    *GranularityFacts.__dataclass_fields__,
    "blocking_n",
    "blocking_mean_ms",
    "blocking_mean_low_ms",
    "blocking_mean_high_ms",
    "blocking_p50_ms",
    "blocking_p99_ms",
    "blocking_max_ms",
    "blocking_predicted_mean_ms",
    "prefill_tokens_per_s",
)


def granularity_row(facts: GranularityFacts, found: GranularityMeasurement) -> OrderedDict[str, object]:
    """One row of the granularity table, columns in the order of GRANULARITY_COLUMNS; None = not measured."""
    samples = blocking_ms(found.blocking_ns)
    ends = bootstrap_mean([sample / NS_PER_MS for sample in found.blocking_ns])
    row: OrderedDict[str, object] = OrderedDict(asdict(facts))
    row.update(
        blocking_n=samples.n,
        blocking_mean_ms=samples.mean,
        blocking_mean_low_ms=None if ends is None else ends.low,
        blocking_mean_high_ms=None if ends is None else ends.high,
        blocking_p50_ms=samples.p50,
        blocking_p99_ms=samples.p99,
        blocking_max_ms=samples.max,
        blocking_predicted_mean_ms=expected_blocking_ms(found.check_interval_s),
        prefill_tokens_per_s=found.prefill_tokens / found.prefill_s if found.prefill_s > 0 else None,
    )
    return row
