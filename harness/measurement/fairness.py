"""Who pays for the order: slowdown, completion times by class, and how evenly they are spread."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from engine.core.clock import NS_PER_S
from engine.core.record import RequestRecord
from harness.measurement.latency import enough_for_quantile, measured, quantile, ttft_from_due_ns

EVERY_CLASS = "all"
"""The name of the row over all requests."""


@dataclass(frozen=True, slots=True)
class ClassFairness:
    """How the requests of one class fared, or of all (`EVERY_CLASS`).

    n: due requests. served: those that got a first token; the rest of the numbers are over them.
    completion_*: of the prefill, seconds from the due instant to the first token; variance in s^2 (of the sample,
        n - 1); None of fewer than one (two) requests.
    slowdown_*: completion / the time the same prompt takes on the idle system; None where that time is not known.
    jain: of the slowdowns of `served`: 1 = all slowed alike, 1/served = one request bears it all.
    few_samples: fewer than 100 were served: no sample is expected beyond the p99.
    """

    name: str
    n: int
    served: int
    completion_mean_s: float | None
    completion_p99_s: float | None
    completion_variance_s2: float | None
    slowdown_mean: float | None
    slowdown_p99: float | None
    jain: float | None
    few_samples: bool


def fairness(
    records: Sequence[RequestRecord], unloaded_s: Callable[[int], float] | None = None
) -> tuple[ClassFairness, ...]:
    """One entry over all requests, then one per class in order of their names; none of no requests.

    unloaded_s: prompt tokens -> seconds to the first token when nothing else runs; None = not known.
    Latency alone misleads where much was never served: read `served` beside it.
    """
    if not records:
        return ()
    names = sorted({record.task for record in records})
    groups = [(EVERY_CLASS, list(records))]
    groups += [(name, [record for record in records if record.task == name]) for name in names]
    return tuple(_of(name, group, unloaded_s) for name, group in groups)


def jain_index(values: Iterable[float]) -> float | None:
    """Jain's index (sum x)^2 / (n sum x^2): 1 when all are equal, 1/n when one has everything; None of none.

    Source: Jain, Chiu, Hawe, "A quantitative measure of fairness", DEC TR-301, 1984.
    """
    known = list(values)
    squares = math.fsum(value * value for value in known)
    return None if not squares else math.fsum(known) ** 2 / (len(known) * squares)


def _of(name: str, records: Sequence[RequestRecord], unloaded_s: Callable[[int], float] | None) -> ClassFairness:
    times = [ns / NS_PER_S for ns in measured(map(ttft_from_due_ns, records))]
    slowdowns = [] if unloaded_s is None else _slowdowns(records, unloaded_s)
    return ClassFairness(
        name=name or "unnamed",
        n=len(records),
        served=len(times),
        completion_mean_s=_mean(times),
        completion_p99_s=quantile(times, 0.99),
        completion_variance_s2=_variance(times),
        slowdown_mean=_mean(slowdowns),
        slowdown_p99=quantile(slowdowns, 0.99),
        jain=jain_index(slowdowns),
        few_samples=not enough_for_quantile(len(times), 0.99),
    )


def _slowdowns(records: Iterable[RequestRecord], unloaded_s: Callable[[int], float]) -> list[float]:
    return [
        ttft_ns / NS_PER_S / unloaded_s(record.prompt_tokens)
        for record in records
        if (ttft_ns := ttft_from_due_ns(record)) is not None
    ]


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _variance(values: Sequence[float]) -> float | None:
    if len(values) < 2:
        return None
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
