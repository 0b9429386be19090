"""The simulator against others' arithmetic: published numbers, an independent simulation, and one by hand."""

import csv
import os
from pathlib import Path

import numpy as np
import pytest

from engine.scheduling.policies.fcfs import FCFS
from engine.scheduling.policies.non_preemptive import NonPreemptive
from engine.scheduling.policies.s_edf import SlackEDF
from tests.simulation.reference_list import (
    CURVE,
    POLICIES,
    REFERENCE_RPS,
    SWITCH_S,
    TTFT_SLO_S,
    PromptLength,
    attainment,
    max_goodput_rps,
    requests_at,
)

REPOSITORY = Path(__file__).resolve().parents[2]


def some_lengths(count: int) -> list[PromptLength]:
    random = np.random.default_rng(1)
    means = {"text": 650, "image": 390, "search": 5000, "file": 4100}
    kinds = random.choice(sorted(means), count, p=[0.03, 0.08, 0.2, 0.69])
    return [PromptLength(kind, 1 + int(random.exponential(means[kind]))) for kind in map(str, kinds)]


def seconds(tokens: int) -> float:
    return CURVE[0] + CURVE[1] * tokens + CURVE[2] * tokens**2


def fcfs_by_lindley(lengths: list[PromptLength], arrivals: list[float]) -> float:
    """Each begins when it has arrived and the one before it has ended."""
    free, met = 0.0, 0
    for each, at in zip(lengths, arrivals, strict=True):
        free = max(free, at) + seconds(each.tokens)
        met += free - at <= TTFT_SLO_S[each.task]
    return met / len(lengths)


def s_edf_from_its_description(lengths: list[PromptLength], arrivals: list[float]) -> float:
    """S-EDF, decided at arrivals and completions; leaving unfinished work costs SWITCH_S, then it decides again."""
    left = {i: seconds(each.tokens) for i, each in enumerate(lengths)}
    due = [at + TTFT_SLO_S[each.task] for each, at in zip(lengths, arrivals, strict=True)]
    live: set[int] = set()
    now, following, running, met = 0.0, 0, None, 0

    def first() -> int:
        feasible = [i for i in live if due[i] - now - left[i] > 0]
        return min(feasible, key=due.__getitem__) if feasible else max(live, key=due.__getitem__)

    while following < len(lengths) or live:
        while following < len(lengths) and arrivals[following] <= now:
            live.add(following)
            following += 1
        if not live:
            now = arrivals[following]
            continue
        best = first()
        if running is not None and best != running:
            now, running = now + SWITCH_S, None
            continue
        running = best
        end = now + left[best]
        if following < len(lengths) and arrivals[following] < end:
            left[best] -= arrivals[following] - now
            now = arrivals[following]
        else:
            now, running = end, None
            live.discard(best)
            met += now <= due[best]
    return met / len(lengths)


@pytest.mark.parametrize("rate_rps", [1.0, 3.0, 8.0])
def test_fcfs_is_what_lindleys_recursion_says(rate_rps: float) -> None:
    lengths = some_lengths(150)
    arrivals = [each.due_ns / 1e9 for each in requests_at(lengths, rate_rps, seed=3)]
    assert attainment(lengths, NonPreemptive(FCFS()), rate_rps, seed=3) == fcfs_by_lindley(lengths, arrivals)


@pytest.mark.parametrize("rate_rps", [3.0, 8.0, 16.0])
def test_s_edf_is_what_its_description_says(rate_rps: float) -> None:
    lengths = some_lengths(150)
    arrivals = [each.due_ns / 1e9 for each in requests_at(lengths, rate_rps, seed=3)]
    by_hand = s_edf_from_its_description(lengths, arrivals)
    assert attainment(lengths, SlackEDF(), rate_rps, seed=3) == pytest.approx(by_hand, abs=1 / 150)


def test_arrivals_are_as_agreed() -> None:
    requests = requests_at(some_lengths(4), 2.0, seed=1)
    at_s = np.random.default_rng(1).exponential(0.5, 4).cumsum()
    assert [each.due_ns for each in requests] == [round(at * 1e9) for at in at_s]


def test_the_crossing_is_found() -> None:
    lengths = some_lengths(40)
    rate = max_goodput_rps(lengths, SlackEDF)

    def mean(at_rps: float) -> float:
        return sum(attainment(lengths, SlackEDF(), at_rps, seed) for seed in range(5)) / 5

    assert mean(rate / 1.01) >= 0.9 > mean(rate * 1.01)


def test_a_list_that_no_rate_serves() -> None:
    with pytest.raises(ValueError, match=r"stays under 0\.9 at any rate"):
        max_goodput_rps([PromptLength("text", 100_000)], SlackEDF)


@pytest.mark.traces
@pytest.mark.parametrize("name", sorted(REFERENCE_RPS))
def test_the_published_lengths_agree_with_the_independent_simulation(name: str) -> None:
    folder = Path(os.environ.get("FLOWPREFILL_TRACES") or REPOSITORY.parent / "shared" / "traces")
    path = folder / "qwen_lengths_0_2min.csv"
    if not path.is_file():
        pytest.skip("the published lengths are not at hand (FLOWPREFILL_TRACES)")
    with path.open(newline="", encoding="utf-8") as file:
        lengths = [PromptLength(row["type"], int(row["input_length"])) for row in csv.DictReader(file)]
    assert len(lengths) == 323
    assert max_goodput_rps(lengths, POLICIES[name]) == pytest.approx(REFERENCE_RPS[name], rel=0.02)
