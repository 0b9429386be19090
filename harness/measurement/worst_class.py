"""The worst class over pooled seeds, and the rate up to which even it keeps the target.

A run's own worst class is the lowest of a few small samples: it is too low by chance, and another class from seed to
seed. Here the requests of a class are pooled over the seeds first, and the minimum is taken then.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.measurement.crossing import TARGET, MaxGoodput, crossings
from harness.measurement.goodput import estimate_and_interval
from harness.measurement.uncertainty import LEVEL, Interval
from harness.measurement.verdict import Verdict

ENOUGH_REQUESTS = 100
"""Below so many pooled requests, one request more or less moves a class by over a point."""


@dataclass(frozen=True, slots=True)
class PooledClass:
    """A class over several seeds. name: as in the columns attainment_<name> and n_<name>."""

    name: str
    requests: int
    attainment: float

    @property
    def few_requests(self) -> bool:
        """Whether it has too few requests for a claim."""
        return self.requests < ENOUGH_REQUESTS


@dataclass(frozen=True, slots=True)
class WorstClassGoodput:
    """Max goodput by the worst class. interval: by resampling seeds; None of fewer than two.

    decided_by: the worst class at the first rate that misses the target (the highest rate where none does), over all
    seeds: the class that sets the number.
    """

    found: MaxGoodput
    interval: Interval | None
    decided_by: PooledClass


def pooled_classes(rows: Iterable[Mapping[str, str]]) -> tuple[PooledClass, ...]:
    """Each class over the rows of one series at one rate (text of a point table; only VALID ones count), by name."""
    met: dict[str, float] = {}
    requests: dict[str, int] = {}
    for row in _valid(rows):
        for name, (share, n) in _classes(row).items():
            met[name] = met.get(name, 0.0) + share * n
            requests[name] = requests.get(name, 0) + n
    return tuple(PooledClass(name, requests[name], met[name] / requests[name]) for name in sorted(met))


def worst_pooled_class(rows: Iterable[Mapping[str, str]]) -> PooledClass | None:
    """The class of lowest pooled attainment (the first by name among equals); None where there is no class."""
    return min(pooled_classes(rows), key=lambda pooled: pooled.attainment, default=None)


def max_goodput_worst_class(
    rows: Sequence[Mapping[str, str]], target: float = TARGET, level: float = LEVEL
) -> WorstClassGoodput | None:
    """The rate_scale at which the worst pooled class crosses the target, of the rows of one series.

    At each rate classes are pooled over the seeds drawn and the lowest is taken; that curve is fitted and read off as
    the mean attainment is (see `crossing`). None where no VALID row has a class.
    """
    by_rate: dict[float, list[Mapping[str, str]]] = {}
    for row in _valid(rows):
        if _classes(row):
            by_rate.setdefault(float(row["rate_scale"]), []).append(row)
    if not by_rate:
        return None
    rates = sorted(by_rate)
    seeds = sorted({int(row["seed"]) for rate in rates for row in by_rate[rate]})
    names = sorted({name for rate in rates for row in by_rate[rate] for name in _classes(row)})
    met, requests = np.zeros((2, len(names), len(seeds), len(rates)))
    for at, rate in enumerate(rates):
        for row in by_rate[rate]:
            for name, (share, n) in _classes(row).items():
                cell = names.index(name), seeds.index(int(row["seed"])), at
                met[cell] += share * n
                requests[cell] += n

    def lowest(counts: NDArray[np.float64]) -> NDArray[np.float64]:
        """Draws x rates; nan where none of the seeds drawn has the rate."""
        drawn, of = np.einsum("ds,csr->cdr", counts, met), np.einsum("ds,csr->cdr", counts, requests)
        shares = np.divide(drawn, of, out=np.full_like(drawn, np.inf), where=of > 0).min(axis=0)
        return np.where(np.isinf(shares), np.nan, shares)

    found, interval = estimate_and_interval(lambda counts: crossings(rates, lowest(counts), target), len(seeds), level)
    missed = [rate for rate in rates if rate > found.at_least] or rates[-1:]
    decided_by = worst_pooled_class(by_rate[missed[0]])
    assert decided_by is not None
    return WorstClassGoodput(found, interval, decided_by)


def _valid(rows: Iterable[Mapping[str, str]]) -> list[Mapping[str, str]]:
    return [row for row in rows if row["verdict"] == Verdict.VALID]


def _classes(row: Mapping[str, str]) -> dict[str, tuple[float, int]]:
    """Share met and requests of each class the run had."""
    names = [column[2:] for column in row if column.startswith("n_") and row.get(f"attainment_{column[2:]}", "") != ""]
    return {name: (float(row[f"attainment_{name}"]), int(row[f"n_{name}"])) for name in names if int(row[f"n_{name}"])}
