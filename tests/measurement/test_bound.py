"""The clairvoyant bound against exhaustive search, an integer programme, and cases worked out by hand."""

import dataclasses
import itertools
import random
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp

from harness.measurement import bound
from harness.measurement.bound import Bound, Job, clairvoyant_bound
from harness.measurement.least_cost import LeastCost, least_seconds

CLOSE = 1e-6


def jobs_of(*rows: tuple[float, float, float]) -> list[Job]:
    return [Job(*row) for row in rows]


def overall(*rows: tuple[float, float, float], servers: int = 1) -> float | None:
    return clairvoyant_bound(jobs_of(*rows), servers).overall


def test_without_requests_there_is_no_bound() -> None:
    assert clairvoyant_bound([]) == Bound(None, None)


def test_what_fits_is_met_and_what_never_fits_counts_as_missed() -> None:
    assert overall((0, 1, 1), (1, 2, 1)) == pytest.approx(1.0)
    assert overall((0, 1, 0.5), (0.25, 0.5, 0.25)) == pytest.approx(1.0)
    assert overall((0, 1, 1.001)) == 0.0
    assert overall((5, 4, 0.1)) == 0.0
    assert overall((0, 1, 1), (0, 1, 2)) == pytest.approx(0.5)
    assert overall((0.1, 0.3, 0.2)) == pytest.approx(1.0)  # exactly its window, which floats make a hair shorter


def test_two_that_need_the_same_second_share_it() -> None:
    assert overall((0, 1, 1), (0, 1, 1)) == pytest.approx(0.5)
    assert overall((0, 1, 1), (0, 1, 1), (0, 1, 1), servers=2) == pytest.approx(2 / 3)


def test_a_request_is_never_on_two_devices_at_once() -> None:
    """B needs both its seconds whole, so what A takes of the first is lost to B in both: 1 of 2, not 1.5."""
    assert overall((0, 1, 1), (0, 2, 2)) == pytest.approx(0.5)
    assert overall((0, 1, 1.5), servers=2) == 0.0
    assert overall((0, 1, 1), (0, 2, 2), servers=2) == pytest.approx(1.0)


def test_the_worst_class_gets_a_schedule_of_its_own() -> None:
    """Three short ones or a long one fit: overall favours the short ones, the worst class shares the second evenly."""
    jobs = [*(Job(0, 1, 1 / 3, "short") for _ in range(3)), Job(0, 1, 1, "long")]
    found = clairvoyant_bound(jobs)
    assert found.overall == pytest.approx(3 / 4)
    assert found.worst_class == pytest.approx(1 / 2)
    assert clairvoyant_bound([*jobs, Job(0, 1, 2, "lost")]).worst_class == 0.0


@pytest.mark.parametrize("row", [(0, 1, 0.0), (0, 1, -1.0), (0, 1, float("inf")), (float("nan"), 1, 1)])
def test_numbers_that_mean_nothing_are_refused(row: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="a job needs"):
        Job(*row)
    with pytest.raises(ValueError, match="servers must be at least 1"):
        clairvoyant_bound([Job(0, 1, 1)], servers=0)


# -- exhaustive search ---------------------------------------------------------------------------------------------

Row = tuple[int, int, float]
"""Release, deadline and cost, on a grid of tenths of a second."""


def edf_meets(rows: Sequence[Row]) -> bool:
    """Whether preemptive EDF, which is optimal on one device, meets all."""
    left = [cost for _, _, cost in rows]
    now = 0.0
    while any(cost > 1e-9 for cost in left):
        ready = [i for i, (release, _, _) in enumerate(rows) if left[i] > 1e-9 and release <= now + 1e-9]
        later = [release for i, (release, _, _) in enumerate(rows) if left[i] > 1e-9 and release > now + 1e-9]
        if not ready:
            now = min(later)
            continue
        first = min(ready, key=lambda i: rows[i][1])
        ran = min([left[first], *(release - now for release in later)])
        now += ran
        left[first] -= ran
        if left[first] <= 1e-9 and now > rows[first][1] + 1e-9:
            return False
    return True


def subsets(n: int) -> Iterator[tuple[int, ...]]:
    return itertools.chain.from_iterable(itertools.combinations(range(n), size) for size in range(n, -1, -1))


def job(row: Row, task: str = "") -> Job:
    release, deadline, cost = row
    return Job(release / 10, deadline / 10, cost / 10, task)


grid_rows = st.tuples(st.integers(0, 12), st.integers(1, 10), st.integers(1, 8)).map(
    lambda t: (t[0], t[0] + t[1], t[2])
)


@settings(max_examples=60)
@given(st.lists(st.tuples(grid_rows, st.sampled_from("ab")), min_size=1, max_size=8))
def test_no_set_that_edf_meets_beats_the_bound(drawn: list[tuple[Row, str]]) -> None:
    rows, tasks = [row for row, _ in drawn], [task for _, task in drawn]
    met = [kept for kept in subsets(len(rows)) if edf_meets([rows[i] for i in kept])]
    found = clairvoyant_bound([job(row, task) for row, task in drawn])
    assert found.overall is not None
    assert found.worst_class is not None
    best = max(len(kept) for kept in met) / len(rows)
    worst = max(min(sum(tasks[i] == t for i in kept) / tasks.count(t) for t in set(tasks)) for kept in met)
    assert best - CLOSE <= found.overall <= 1 + CLOSE
    assert worst - CLOSE <= found.worst_class <= found.overall + CLOSE
    assert (found.overall >= 1 - CLOSE) == (best == 1)


def test_no_set_of_ten_that_edf_meets_beats_the_bound() -> None:
    rng = random.Random(7)
    for _ in range(4):
        rows: list[Row] = []
        for _ in range(10):
            release = rng.randrange(15)
            rows.append((release, release + rng.randrange(2, 8), rng.randrange(1, 4)))
        best = next(len(kept) for kept in subsets(10) if edf_meets([rows[i] for i in kept]))
        most = clairvoyant_bound([job(row) for row in rows]).overall
        assert most is not None
        assert best / 10 - CLOSE <= most < best / 10 + 0.15


def partitions(items: Sequence[int]) -> Iterator[list[list[int]]]:
    if not items:
        yield []
        return
    first, rest = items[0], items[1:]
    for smaller in partitions(rest):
        yield [[first], *smaller]
        for i, part in enumerate(smaller):
            yield [*smaller[:i], [first, *part], *smaller[i + 1 :]]


lengths = st.integers(1, 12)
batch_rows = st.tuples(st.integers(0, 12), st.integers(4, 20), lengths)


@settings(max_examples=60)
@given(st.lists(batch_rows, min_size=1, max_size=5), st.integers(0, 4), st.sampled_from([4, 8, 12]))
def test_no_partition_into_batches_beats_the_bound(
    drawn: list[tuple[int, int, int]], fixed: int, batch_tokens: int
) -> None:
    """Cost c + 0.5 sum n + 0.05 sum n^2 in tenths; batches of at most B tokens, a longer prompt alone."""
    coefficients = (fixed, 0.5, 0.05)

    def as_one(batch: list[int]) -> Row:
        members = [drawn[i] for i in batch]
        cost = fixed + sum(0.5 * n + 0.05 * n * n for _, _, n in members)
        return max(r for r, _, _ in members), min(r + wait for r, wait, _ in members), cost

    def admissible(batch: list[int]) -> bool:
        return len(batch) == 1 or sum(drawn[i][2] for i in batch) <= batch_tokens

    def met(kept: Sequence[int]) -> bool:
        return any(
            all(map(admissible, batches)) and edf_meets([as_one(batch) for batch in batches])
            for batches in partitions(kept)
        )

    best = next(len(kept) for kept in subsets(len(drawn)) if met(kept))
    jobs = [job((r, r + wait, least_seconds(n, coefficients, batch_tokens))) for r, wait, n in drawn]
    most = clairvoyant_bound(jobs).overall
    assert most is not None
    assert most >= best / len(drawn) - CLOSE


# -- integer programme ---------------------------------------------------------------------------------------------


def most_whole_requests(jobs: Sequence[Job], servers: int) -> int:
    """The same constraints with x_j in {0, 1}, written down a second time, dense."""
    ends = sorted({instant for j in jobs for instant in (j.release_s, j.deadline_s)})
    segments = list(itertools.pairwise(ends))
    pairs = [
        (i, s) for i, j in enumerate(jobs) for s, (a, b) in enumerate(segments) if j.release_s <= a < b <= j.deadline_s
    ]
    n, w = len(jobs), len(pairs)
    used, within, alone = np.zeros((n, w + n)), np.zeros((len(segments), w + n)), np.zeros((w, w + n))
    for k, (i, s) in enumerate(pairs):
        a, b = segments[s]
        used[i, k] = within[s, k] = alone[k, k] = 1
        alone[k, w + i] = a - b
    for i, j in enumerate(jobs):
        used[i, w + i] = -j.least_seconds
    found = milp(
        np.concatenate([np.zeros(w), -np.ones(n)]),
        integrality=np.concatenate([np.zeros(w), np.ones(n)]),
        bounds=Bounds(0, np.concatenate([np.full(w, np.inf), np.ones(n)])),
        constraints=[
            LinearConstraint(used, 0, 0),
            LinearConstraint(within, -np.inf, [servers * (b - a) for a, b in segments]),
            LinearConstraint(alone, -np.inf, 0),
        ],
        options={"mip_rel_gap": 0.0},
    )
    assert found.status == 0
    return round(-found.fun)


def overloaded(seed: int, n: int, servers: int) -> list[Job]:
    """Random jobs of three lengths that ask for more than there is; instants in whole milliseconds."""
    rng = random.Random(seed)
    jobs, now_ms = [], 0
    for _ in range(n):
        now_ms += rng.randrange(1, 60 // servers)
        cost_ms, wait_ms = rng.choice([(25, 60), (30, 120), (120, 400)])
        jobs.append(Job(now_ms / 1e3, (now_ms + wait_ms) / 1e3, cost_ms * rng.uniform(0.7, 1.3) / 1e3))
    return jobs


@pytest.mark.parametrize(("seed", "n", "servers"), [(0, 40, 1), (1, 40, 2), (2, 100, 1)])
def test_the_bound_is_above_whole_requests_and_near_them(seed: int, n: int, servers: int) -> None:
    jobs = overloaded(seed, n, servers)
    whole, most = most_whole_requests(jobs, servers), clairvoyant_bound(jobs, servers).overall
    assert most is not None
    assert 0.4 * n < whole < n
    assert whole - CLOSE <= most * n <= whole + max(2, 0.03 * n)


@pytest.mark.parametrize(("seed", "n", "servers"), [(0, 40, 1), (1, 40, 2), (2, 100, 1), (3, 60, 1)])
def test_a_programme_that_grows_ends_at_the_whole_ones_optimum(
    seed: int, n: int, servers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [dataclasses.replace(job, task="ab"[i % 2]) for i, job in enumerate(overloaded(seed, n, servers))]
    whole = clairvoyant_bound(jobs, servers)
    monkeypatch.setattr(bound, "_FEW_PAIRS", 0)
    grown = clairvoyant_bound(jobs, servers)
    assert grown.overall == pytest.approx(whole.overall, abs=CLOSE)
    assert grown.worst_class == pytest.approx(whole.worst_class, abs=CLOSE)


def test_without_its_true_rows_a_programme_would_end_too_high(monkeypatch: pytest.MonkeyPatch) -> None:
    """B may take half of the first second only as far as it counts: 1 of 2; with w <= |I_s| alone, 1.5 of 2."""
    monkeypatch.setattr(bound, "_FEW_PAIRS", 0)
    assert overall((0, 1, 1), (0, 2, 2)) == pytest.approx(0.5)


def test_the_worst_class_is_left_out_where_it_is_not_asked_for() -> None:
    jobs = [Job(0, 1, 0.5, "a"), Job(0, 1, 1, "b")]
    found = clairvoyant_bound(jobs, worst_class=False)
    assert (found.overall, found.worst_class, found.complete) == (clairvoyant_bound(jobs).overall, None, False)
    assert clairvoyant_bound(jobs).complete


@settings(max_examples=25)
@given(st.lists(grid_rows, min_size=1, max_size=7))
def test_the_integer_programme_is_exactly_what_edf_can_meet(rows: list[Row]) -> None:
    """So the constraints say no less and no more than preemptive scheduling on one device."""
    best = next(len(kept) for kept in subsets(len(rows)) if edf_meets([rows[i] for i in kept]))
    possible = [row for row in rows if row[2] <= row[1] - row[0]]
    assert (most_whole_requests([job(row) for row in possible], 1) if possible else 0) == best


# -- least cost ----------------------------------------------------------------------------------------------------


def test_the_least_cost_of_a_quadratic() -> None:
    assert least_seconds(100, (0.02, 1e-4, 1e-8)) == pytest.approx(0.02 + 0.01 + 1e-4)
    assert least_seconds(100, (0.02, 1e-4, 1e-8), 400) == pytest.approx(0.005 + 0.01 + 1e-4)
    assert least_seconds(800, (0.02, 1e-4, 1e-8), 400) == pytest.approx(0.02 + 0.08 + 64e-4)
    assert least_seconds(10, (1, 0, 0, 2), 5) == pytest.approx(2001)
    with pytest.raises(ValueError, match="fixed part of at least 0 s"):
        least_seconds(10, (-0.1, 1))


@pytest.mark.parametrize("batch_tokens", [None, 1, 64, 400])
def test_the_general_least_cost_is_that_of_a_quadratic_where_the_cost_is_one(batch_tokens: int | None) -> None:
    general = LeastCost(lambda s: 0.02 + 1e-4 * s, lambda n: 1e-8 * n * n, batch_tokens)
    for tokens in (500, 1, 63, 64, 65, 400):
        assert general.seconds(tokens) == pytest.approx(least_seconds(tokens, (0.02, 1e-4, 1e-8), batch_tokens))


def test_a_share_is_taken_in_the_batch_where_it_is_cheapest() -> None:
    """Rows are paid in tiles of 8: 9 rows cost as much as 16, so the cheapest share of 9 is 9/16 of two tiles."""
    tiled = LeastCost(lambda s: 1.0 * -(-s // 8), lambda n: 0.0, 16)
    assert tiled.seconds(9) == pytest.approx(9 / 8)
    assert tiled.seconds(3) == pytest.approx(3 / 8)
    assert LeastCost(lambda s: 1.0 * -(-s // 8), lambda n: 0.0).seconds(9) == 2.0
    for wrong in (0, -1):
        with pytest.raises(ValueError, match="at least 1"):
            tiled.seconds(wrong)
        with pytest.raises(ValueError, match="at least 1"):
            LeastCost(lambda s: 1.0, lambda n: 0.0, wrong)
