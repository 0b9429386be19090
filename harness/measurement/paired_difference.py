"""Attainment of one system minus another's on the same trace rows and seeds, with a paired bootstrap interval."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.core.record import RequestRecord
from harness.measurement.attainment import met_ttft
from harness.measurement.uncertainty import LEVEL, RESAMPLES

Counts = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Difference:
    """first - second in shares, each the mean over seeds. low, high: 95 %, None where nothing could be drawn."""

    first: float
    second: float
    difference: float
    low: float | None
    high: float | None
    seeds: int


def paired_difference(
    first: Mapping[int, Sequence[RequestRecord]],
    second: Mapping[int, Sequence[RequestRecord]],
    rows: int,
    task: str | None = None,
    seed: int = 0,
) -> Difference | None:
    """By seed, the records of two runs whose n-th request is the trace row n mod `rows`; None without common seeds.

    Each draw takes seeds with replacement, and within each the trace rows with replacement: the same ones for both
    systems, every request of a drawn row with it. task: only the requests of this class; None = all.
    """
    seeds = sorted(set(first) & set(second))
    counted = [(_by_row(first[s], rows, task), _by_row(second[s], rows, task)) for s in seeds]
    counted = [(a, b) for a, b in counted if a[1].sum() > 0 and b[1].sum() > 0]
    if not counted:
        return None
    shares = [(a[0].sum() / a[1].sum(), b[0].sum() / b[1].sum()) for a, b in counted]
    mean_first, mean_second = (math.fsum(one[side] for one in shares) / len(shares) for side in (0, 1))
    low, high = _interval(counted, rows, seed)
    return Difference(mean_first, mean_second, mean_first - mean_second, low, high, len(counted))


def _by_row(records: Sequence[RequestRecord], rows: int, task: str | None) -> tuple[Counts, Counts]:
    """Per trace row: requests that met their SLO, and requests."""
    hits, all_ = np.zeros(rows), np.zeros(rows)
    for number, record in enumerate(sorted(records, key=lambda one: one.request_id)):
        if record.ttft_slo_ns is None or task not in (None, record.task):
            continue
        all_[number % rows] += 1
        hits[number % rows] += met_ttft(record)
    return hits, all_


def _interval(
    counted: Sequence[tuple[tuple[Counts, Counts], tuple[Counts, Counts]]], rows: int, seed: int
) -> tuple[float | None, float | None]:
    rng = np.random.default_rng(seed)
    n = len(counted)
    total = np.zeros(RESAMPLES)
    for _ in range(n):
        weights = rng.multinomial(rows, [1 / rows] * rows, size=RESAMPLES).astype(float)
        with np.errstate(invalid="ignore", divide="ignore"):
            each = np.stack([weights @ a[0] / (weights @ a[1]) - weights @ b[0] / (weights @ b[1]) for a, b in counted])
        total += each[rng.integers(n, size=RESAMPLES), np.arange(RESAMPLES)]
    means = total[np.isfinite(total)] / n
    if not means.size:
        return None, None
    tail = (1 - LEVEL) / 2
    return float(np.quantile(means, tail)), float(np.quantile(means, 1 - tail))
