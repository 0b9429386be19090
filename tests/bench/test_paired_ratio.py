"""The order of paired runs, and what a drift of the machine does to their ratio."""

import gc
import itertools

import pytest

from bench import paired_ratio
from bench.paired_ratio import balanced_pairs, median_ratio


def test_four_runs_are_abba_or_baab_and_a_drift_cancels_out(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    clock = itertools.count(100)  # each run takes one unit longer than the one before
    monkeypatch.setattr(paired_ratio, "seconds", lambda run: (run(), float(next(clock)))[1])
    collecting: list[bool] = []

    def first() -> None:
        order.append("a")
        collecting.append(gc.isenabled())

    measured = balanced_pairs(first, lambda: order.append("b"), 40)
    blocks = ["".join(order[6:][start : start + 4]) for start in range(0, 160, 4)]  # six runs warm up
    assert set(blocks) == {"abba", "baab"}
    assert all(a == b for a, b in measured)
    assert median_ratio(measured) == (1.0, 1.0, 1.0)
    assert not any(collecting[3:])
    assert gc.isenabled()
