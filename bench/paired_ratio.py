"""Two ways of doing the same, timed in turn: their ratio with an interval."""

import gc
import random
import statistics
import time
from collections.abc import Callable, Sequence

Pair = tuple[float, float]
"""Seconds of the first way and of the second, measured one right after the other."""


def seconds(run: Callable[[], object]) -> float:
    started_s = time.perf_counter()
    run()
    return time.perf_counter() - started_s


def interleaved_pairs(first: Callable[[], object], second: Callable[[], object], count: int) -> list[Pair]:
    """Time both `count` times, after one warm-up each; who goes first alternates."""
    first()
    second()
    measured: list[Pair] = []
    for number in range(count):
        if number % 2:
            second_s = seconds(second)
            measured.append((seconds(first), second_s))
        else:
            first_s = seconds(first)
            measured.append((first_s, seconds(second)))
    return measured


def balanced_pairs(first: Callable[[], object], second: Callable[[], object], count: int) -> list[Pair]:
    """As `interleaved_pairs`, but each pair is the sums of four runs in the order ABBA or BAAB, drawn by seed.

    A machine that gets steadily slower or faster, and what the first run of two leaves in the caches, cancel out. No
    garbage is collected meanwhile.
    """
    draw, ways = random.Random(0), (first, second)
    for way in (first, second) * 3:
        way()
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        measured: list[Pair] = []
        for _ in range(count):
            outer = draw.randrange(2)
            sums = [0.0, 0.0]
            for way in (outer, 1 - outer, 1 - outer, outer):
                sums[way] += seconds(ways[way])
            measured.append((sums[0], sums[1]))
        return measured
    finally:
        if collecting:
            gc.enable()


def median_ratio(measured: Sequence[Pair]) -> tuple[float, float, float]:
    """Median over pairs of second / first (above 1: the first is faster), and its 95 % bootstrap interval."""
    ratios = [second_s / first_s for first_s, second_s in measured]
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(2000))
    return statistics.median(ratios), medians[50], medians[1949]


def medians_ms(measured: Sequence[Pair]) -> tuple[float, float]:
    """Median milliseconds of both ways."""
    first, second = (statistics.median(column) * 1e3 for column in zip(*measured, strict=True))
    return first, second
