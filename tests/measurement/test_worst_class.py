"""Classes pooled over seeds, by hand."""

import math

import pytest

from harness.measurement.worst_class import PooledClass, max_goodput_worst_class, pooled_classes, worst_pooled_class


def row(rate: float, seed: int, verdict: str = "VALID", **classes: tuple[float, int]) -> dict[str, str]:
    cells = {"rate_scale": str(rate), "seed": str(seed), "verdict": verdict, "attainment_n": "9", "attainment": "1"}
    for name, (share, n) in classes.items():
        cells |= {f"attainment_{name}": str(share), f"n_{name}": str(n)}
    return cells


def test_requests_are_pooled_before_the_minimum_is_taken() -> None:
    """Each run's worst class is at 0.5 or 0.8; pooled, none is below 0.75."""
    rows = [
        row(1, 0, text=(0.9, 80), file=(0.5, 10)),
        row(1, 1, text=(0.8, 80), file=(1.0, 10)),
        row(1, 2, "CLIENT-BOUND", text=(0.0, 80), file=(0.0, 10)),
    ]
    text, file = PooledClass("text", 160, pytest.approx(0.85)), PooledClass("file", 20, pytest.approx(0.75))
    assert pooled_classes(rows) == (file, text)
    assert worst_pooled_class(rows) == file
    assert (file.few_requests, text.few_requests) == (True, False)


def test_a_seed_with_more_requests_of_a_class_weighs_more() -> None:
    assert pooled_classes([row(1, 0, a=(1.0, 30)), row(1, 1, a=(0.0, 10))])[0].attainment == pytest.approx(0.75)


def test_a_class_a_run_does_not_have_is_not_in_it() -> None:
    rows = [row(1, 0, a=(1.0, 5)) | {"attainment_b": "", "n_b": ""}, row(1, 1, a=(1.0, 5), b=(0.4, 5))]
    assert [(pooled.name, pooled.requests) for pooled in pooled_classes(rows)] == [("a", 10), ("b", 5)]
    assert pooled_classes([]) == ()
    assert worst_pooled_class([row(1, 0)]) is None


def test_the_crossing_of_the_worst_class_and_who_sets_it() -> None:
    """File falls from 1.0 to 0.8 between rates 1 and 2, text not before rate 3: file decides at rate scale 1.5."""
    rows = [
        line
        for seed in (0, 1)
        for line in (
            row(1, seed, text=(1.0, 60), file=(1.0, 10)),
            row(2, seed, text=(0.95, 60), file=(0.8, 10)),
            row(3, seed, text=(0.3, 60), file=(0.7, 10)),
        )
    ]
    found = max_goodput_worst_class(rows)
    assert found is not None
    assert (found.found.bound, found.found.known) == ("", pytest.approx(1.5))
    assert found.decided_by == PooledClass("file", 20, pytest.approx(0.8))
    assert found.interval is not None
    assert (found.interval.low, found.interval.high) == (pytest.approx(1.5), pytest.approx(1.5))


def test_the_interval_resamples_seeds_through_the_minimum() -> None:
    """Seed 0 crosses at 1.5 by class a, seed 1 at 1.25 by b; together b has 0.8 and sets 1.5."""
    rows = [
        row(1, 0, a=(1.0, 10), b=(1.0, 10)), row(2, 0, a=(0.8, 10), b=(1.0, 10)),
        row(1, 1, a=(1.0, 10), b=(1.0, 10)), row(2, 1, a=(1.0, 10), b=(0.6, 10)),
    ]  # fmt: skip
    found = max_goodput_worst_class(rows)
    assert found is not None
    assert found.found.known == pytest.approx(1.5)
    assert found.decided_by.name == "b"
    assert found.interval is not None
    assert (found.interval.low, found.interval.high) == (pytest.approx(1.25), pytest.approx(1.5))


def test_bounds_and_single_seeds() -> None:
    met = max_goodput_worst_class([row(1, 0, a=(1.0, 200)), row(2, 0, a=(0.95, 200))])
    assert met is not None
    assert (met.found.at_least, met.found.at_most, met.interval) == (2.0, math.inf, None)
    assert (met.decided_by.name, met.decided_by.few_requests) == ("a", False)
    missed = max_goodput_worst_class([row(1, 0, a=(0.2, 200)), row(2, 0, a=(0.1, 200))])
    assert missed is not None
    assert (missed.found.bound, missed.found.known, missed.decided_by.attainment) == ("below_lowest", 1.0, 0.2)
    assert max_goodput_worst_class([row(1, 0)]) is None
    assert max_goodput_worst_class([row(1, 0, "INCOMPLETE", a=(1.0, 9))]) is None
