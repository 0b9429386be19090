"""The clairvoyant bound: no schedule, however well informed, meets a greater share of the deadlines.

A linear programme over the segments I_s between releases and deadlines. x_j is the share of request j that counts as
met, w_js the seconds spent on it in segment s, m the number of devices, N the number of requests:

    maximise sum x_j / N
    sum over s of w_js = p_j x_j             a request that counts gets the least time it can cost (see least_cost)
    sum over j of w_js <= m |I_s|            no more than there is
    0 <= w_js <= |I_s| x_j                   one request is on one device at a time; segments inside [r_j, d_j] only
    0 <= x_j <= 1; x_j = 0 if p_j > d_j - r_j

With x_j in {0, 1} these are exactly the sets that preemptive scheduling can meet (McNaughton's rule within each
segment), so the programme bounds every policy, batching rule and granularity on a serial device. For the worst class:
maximise z <= the mean of x_j over each class.

scipy is asked for when a bound is computed, not before.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_TICK_S: Final = 1e-6
"""Segments are whole ticks: releases are rounded down and deadlines up, so that rounding can only raise the bound."""
_ROUNDING_S: Final = 1e-9
_FEW_PAIRS: Final = 50_000
"""Up to so many pairs of a job and a segment the whole programme is as fast as one that grows."""
_TOLERANCE_MS: Final = 1e-6

_Floats = NDArray[np.float64]
_Indices = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Job:
    """One request with a TTFT SLO (others are in no denominator).

    release_s, deadline_s: the instants it is due and its first token must be there, on one clock.
    least_seconds: the least device time it can cost (`harness.measurement.least_cost`), above 0.
    task: its class.
    """

    release_s: float
    deadline_s: float
    least_seconds: float
    task: str = ""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.release_s) and math.isfinite(self.deadline_s)):
            raise ValueError(f"a job needs finite instants, got {self.release_s} and {self.deadline_s} s")
        if not (self.least_seconds > 0 and math.isfinite(self.least_seconds)):
            raise ValueError(f"a job needs a finite time above 0 s, got {self.least_seconds}")


@dataclass(frozen=True, slots=True)
class Bound:
    """Greatest attainment any schedule reaches, overall and (by a schedule of its own) in the worst class.

    None of no requests, and for a worst class that was not asked for. Exact to the solver's tolerance, 1e-6: compare
    with a measured share accordingly.
    """

    overall: float | None
    worst_class: float | None

    @property
    def complete(self) -> bool:
        """Whether nothing was left unsolved."""
        return self.overall is None or self.worst_class is not None


class BoundError(RuntimeError):
    """The solver found no optimum: a fault, for x = 0 always is a solution and no share exceeds 1."""


def clairvoyant_bound(jobs: Sequence[Job], servers: int = 1, *, worst_class: bool = True) -> Bound:
    """The bound of these requests on `servers` serial devices.

    worst_class: solve for it too; of thousands of requests that takes ten times as long as the overall bound.
    Grows with the requests alive at once: under a second for the 2-minute window, some ten for 10 minutes near
    capacity. Raises BoundError, ValueError, ImportError without scipy.
    """
    if servers < 1:
        raise ValueError(f"servers must be at least 1, got {servers}")
    if not jobs:
        return Bound(None, None)
    possible = [job for job in jobs if job.least_seconds <= job.deadline_s - job.release_s + _ROUNDING_S]
    classes: dict[str, int] = {}
    for job in jobs:
        classes[job.task] = classes.get(job.task, 0) + 1
    if not possible:
        return Bound(0.0, 0.0)
    programme = _Programme(possible, servers)
    overall = programme.most_requests() / len(jobs)
    if not worst_class:
        return Bound(overall, None)
    if len(classes) == 1:
        return Bound(overall, overall)
    if classes.keys() - {job.task for job in possible}:
        return Bound(overall, 0.0)
    return Bound(overall, programme.best_worst_class(classes))


class _Programme:
    """The constraints, as sparse matrices. Times in milliseconds, for coefficients near 1.

    Variables: w_js (one for each segment inside the window of each job), then x_j, then z.
    Of many pairs hardly any w_js <= |I_s| x_j binds. A large programme starts with w_js <= |I_s| instead and gets the
    true rows of those jobs that break one, until none does: then it is the whole programme's optimum.
    """

    def __init__(self, jobs: Sequence[Job], servers: int) -> None:
        from scipy import sparse

        self._tasks = [job.task for job in jobs]
        segments, of_job, of_segment = _segments(jobs)
        n, pairs = len(jobs), len(of_job)
        self._width = pairs + n + 1
        w = np.arange(pairs)
        self._x = pairs + np.arange(n)
        least_ms = np.array([job.least_seconds for job in jobs]) * 1e3
        self._equal = _matrix(
            sparse,
            (n, self._width),
            (np.ones(pairs), of_job, w),
            (-least_ms, np.arange(n), self._x),
        )
        self._within = _matrix(sparse, (len(segments), self._width), (np.ones(pairs), of_segment, w))
        self._capacity = servers * segments
        self._of_job, self._longest = of_job, segments[of_segment]
        self._alone = np.full(pairs, pairs <= _FEW_PAIRS)  # pairs whose row w_js <= |I_s| x_j is there

    def most_requests(self) -> float:
        """The greatest sum of x_j."""
        wanted = np.zeros(self._width)
        wanted[self._x] = 1.0
        return self._maximum(wanted)

    def best_worst_class(self, classes: dict[str, int]) -> float:
        """The greatest z. classes: requests of each class, the impossible ones too."""
        from scipy import sparse

        place = {task: i for i, task in enumerate(classes)}
        of_class = np.array([place[task] for task in self._tasks])
        counts = np.array(list(classes.values()), dtype=float)
        z = np.full(len(classes), self._width - 1)
        means = _matrix(
            sparse,
            (len(classes), self._width),
            (counts, np.arange(len(classes)), z),
            (-np.ones(len(of_class)), of_class, self._x),
        )
        wanted = np.zeros(self._width)
        wanted[-1] = 1.0
        return self._maximum(wanted, means)

    def _maximum(self, wanted: _Floats, at_most_zero: Any = None) -> float:
        """The optimum; at_most_zero: rows of an objective's own."""
        while True:
            found = self._solve(wanted, at_most_zero)
            share = found.x[self._x][self._of_job]
            broken = ~self._alone & (found.x[: len(self._longest)] > self._longest * share + _TOLERANCE_MS)
            if not broken.any():
                return max(0.0, -float(found.fun))
            self._alone |= np.isin(self._of_job, self._of_job[broken])

    def _solve(self, wanted: _Floats, at_most_zero: Any) -> Any:
        from scipy import sparse
        from scipy.optimize import linprog

        pairs, rows = len(self._longest), np.flatnonzero(self._alone)
        alone = _matrix(
            sparse,
            (len(rows), self._width),
            (np.ones(len(rows)), np.arange(len(rows)), rows),
            (-self._longest[rows], np.arange(len(rows)), self._x[self._of_job[rows]]),
        )
        at_most = sparse.vstack([self._within, alone, *([] if at_most_zero is None else [at_most_zero])], format="csr")
        zeros = np.zeros(at_most.shape[0] - len(self._capacity))
        highest = np.full(self._width, 1.0)
        highest[:pairs] = np.where(self._alone, np.inf, self._longest)
        found = linprog(
            -wanted,
            A_ub=at_most,
            b_ub=np.concatenate([self._capacity, zeros]),
            A_eq=self._equal,
            b_eq=np.zeros(self._equal.shape[0]),
            bounds=np.column_stack([np.zeros(self._width), highest]),
            method="highs-ds",  # the dual simplex: several times as fast here as the interior point method
        )
        if found.status != 0:
            raise BoundError(f"the linear programme of the bound has no optimum: {found.message}")
        return found


def _segments(jobs: Sequence[Job]) -> tuple[_Floats, _Indices, _Indices]:
    """Lengths of the segments in ms; and, for each pair of a job and a segment inside its window, both indices."""
    releases = np.floor(np.round([job.release_s / _TICK_S for job in jobs], 3))
    deadlines = np.ceil(np.round([job.deadline_s / _TICK_S for job in jobs], 3))
    ends = np.unique(np.concatenate([releases, deadlines]))
    first, stop = np.searchsorted(ends, releases), np.searchsorted(ends, deadlines)
    counts = stop - first
    of_job = np.repeat(np.arange(len(jobs)), counts)
    of_segment = np.arange(counts.sum()) + np.repeat(first - (np.cumsum(counts) - counts), counts)
    return np.diff(ends) * _TICK_S * 1e3, of_job, of_segment


def _matrix(sparse: Any, shape: tuple[int, int], *blocks: tuple[_Floats, _Indices, _Indices]) -> Any:
    """A sparse matrix from (values, rows, columns)."""
    values, rows, columns = (np.concatenate(part) for part in zip(*blocks, strict=True))
    return sparse.csr_array((values, (rows, columns)), shape=shape)
