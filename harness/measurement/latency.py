"""Latencies of single requests, and quantiles of many."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from engine.core.record import RequestRecord


def ttft_from_due_ns(record: RequestRecord) -> int | None:
    """Time to first token from the instant the request was due; None = no token came.

    Waiting inside the client counts: it is what a user of the service would have seen.
    """
    return None if record.first_token_at_ns is None else record.first_token_at_ns - record.due_at_ns


def ttft_from_send_ns(record: RequestRecord) -> int | None:
    """Time to first token from the instant the request left; None = not sent, or no token came."""
    if record.first_token_at_ns is None or record.sent_at_ns is None:
        return None
    return record.first_token_at_ns - record.sent_at_ns


def measured(values: Iterable[int | None]) -> list[int]:
    """The values that exist, in their order."""
    return [value for value in values if value is not None]


def quantile(values: Sequence[float], q: float) -> float | None:
    """Quantile by linear interpolation between order statistics; None of no values.

    With the values sorted as x[0] ... x[n-1], the quantile lies at place q * (n - 1), between the
    two neighbours of that place in proportion (Hyndman and Fan's type 7, the default of numpy).
    """
    if not 0 <= q <= 1:
        raise ValueError(f"a quantile lies between 0 and 1, got {q}")
    if not values:
        return None
    ordered = sorted(values)
    place = q * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def enough_for_quantile(n: int, q: float) -> bool:
    """Whether n samples are expected to hold at least one beyond the quantile: 100 of them for p99.

    Below that, a p99 is the largest sample or nearly so, and says little.
    """
    return q < 1 and round(n * (1 - q), 9) >= 1


@dataclass(frozen=True, slots=True)
class Summary:
    """Distribution of one quantity, in the unit of its samples. All but n are None when n = 0."""

    n: int
    mean: float | None
    p50: float | None
    p99: float | None
    max: float | None


def summarize(values: Sequence[float]) -> Summary:
    """Count, mean, median, p99 and maximum."""
    if not values:
        return Summary(0, None, None, None, None)
    return Summary(
        n=len(values),
        mean=math.fsum(values) / len(values),
        p50=quantile(values, 0.5),
        p99=quantile(values, 0.99),
        max=max(values),
    )
