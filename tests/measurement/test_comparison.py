"""Two result sets held against each other: hand-computed differences, and what counts as a regression."""

from pathlib import Path

import pytest

from harness.experiments.compare import main
from harness.measurement.comparison import Bounds, compare
from harness.measurement.tables import write_points
from tests.measurement.test_goodput_table import point

BOUNDS = Bounds(attainment=0.02, goodput=0.05)


def rows(series: str, *met_by_seed: int, rate: float = 2.0, **settings: object) -> list[dict[str, object]]:
    return [point(series, rate, met, seed, **settings) for seed, met in enumerate(met_by_seed)]


def test_differences_are_paired_by_seed() -> None:
    found = compare(rows("A", 90, 80, 70), rows("A", 85, 76, 67))
    (one,) = found.attainment
    assert (one.series, one.rate_scale, one.seeds) == ("A", 2.0, 3)
    assert (one.first, one.second, one.difference) == pytest.approx((0.80, 0.76, -0.04))
    assert one.interval is not None
    # Of the losses 5, 4 and 3 points the 27 draws' means run from 5 to 3, each end with chance 1/27 > 2.5 %.
    assert (one.interval.low, one.interval.high) == pytest.approx((-0.05, -0.03))
    assert found.unpaired == 0


def test_a_certain_loss_beyond_the_bound_is_a_regression() -> None:
    found = compare(rows("A", 90, 80, 70), rows("A", 85, 76, 67))
    assert found.regressions(BOUNDS) == ("A, rate 2: attainment 0.8000 -> 0.7600",)
    assert found.regressions(Bounds(attainment=0.05, goodput=0.05)) == ()


def test_a_loss_that_chance_explains_is_none() -> None:
    # -12, +4, -1: the mean is -3 points, but a draw of the second seed alone gains.
    found = compare(rows("A", 90, 80, 70), rows("A", 78, 84, 69))
    assert found.attainment[0].difference == pytest.approx(-0.03)
    assert found.regressions(BOUNDS) == ()


def test_one_seed_has_no_interval_and_its_number_decides() -> None:
    found = compare(rows("A", 90), rows("A", 87))
    assert found.attainment[0].interval is None
    assert len(found.regressions(BOUNDS)) == 1


def test_max_goodput_that_fell_is_a_regression() -> None:
    def curve(crossing: float) -> list[dict[str, object]]:
        return [
            point("A", rate, met, seed)
            for seed in (0, 1)
            for rate, met in ((1, 100), (crossing - 1, 100), (crossing + 1, 80), (9, 80))
        ]

    # 90 % half-way between the two middle rates: but only rates that both sets have are compared.
    first, second = curve(6.0), curve(4.0)
    shared = {row["rate_scale"] for row in first} & {row["rate_scale"] for row in second}
    assert shared == {1, 5.0, 9}
    found = compare(first, second)
    # First: 100 % at 5, 80 % at 9: crosses at 7. Second: 100 % at 1, 80 % at 5: crosses at 3.
    (ratio,) = found.goodput
    assert ratio.ratio.known == pytest.approx(3 / 7)
    assert any("max goodput fell to 0.429" in sentence for sentence in found.regressions(BOUNDS))
    assert found.unpaired == 4


def test_a_max_goodput_below_all_rates_fell_to_at_most_so_much() -> None:
    was, now = (
        [row for rate, met in zip((1, 3), mets, strict=True) for row in rows("A", met, met, rate=rate)]
        for mets in ((100, 80), (80, 60))
    )
    # 90 % at 2 before, below 1 now.
    assert "A: max goodput fell to at most 0.500 of what it was" in compare(was, now).regressions(BOUNDS)


def test_points_that_are_not_valid_stand_alone() -> None:
    spoilt = [{**row, "verdict": "CLIENT-BOUND"} for row in rows("A", 10)]
    found = compare(rows("A", 90), spoilt)
    assert (found.attainment, found.unpaired) == ((), 2)


def test_a_server_that_failed_where_it_did_not_before_is_a_regression() -> None:
    failed = [{**row, "verdict": "SERVER-FAILED"} for row in rows("A", 0, rate=4.0)]
    found = compare([*rows("A", 90), *rows("A", 80, rate=4.0)], [*rows("A", 90), *failed])
    assert found.unpaired == 2
    assert found.regressions(BOUNDS) == ("A, rate 4, seed 0: a valid point before, the server failed now",)
    assert compare([*rows("A", 90), *failed], [*rows("A", 90), *failed]).regressions(BOUNDS) == ()
    assert compare([*rows("A", 90), *failed], [*rows("A", 90), *rows("A", 80, rate=4.0)]).regressions(BOUNDS) == ()


def test_series_of_two_experiments_are_told_apart_by_name() -> None:
    both = [*rows("A", 90), *rows("A", 80, experiment="other")]
    assert [one.series for one in compare(both, both).attainment] == ["goodput_vs_rate, A", "other, A"]


def test_the_command_ends_with_1_on_a_regression_and_2_on_a_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder, met in (("was", (90, 80, 70)), ("same", (90, 80, 70)), ("worse", (85, 76, 67))):
        write_points(tmp_path / folder / "tables" / "test.csv", rows("A", *met))
    write_points(tmp_path / "other" / "tables" / "test.csv", rows("A, alpha=0.5", 90))
    was, same, worse = (str(tmp_path / folder) for folder in ("was", "same", "worse"))
    assert main([was, same]) == 0
    assert "REGRESSION" not in capsys.readouterr().out
    assert main([was, worse]) == 1
    assert "REGRESSION A, rate 2: attainment 0.8000 -> 0.7600" in capsys.readouterr().out
    assert main([was, worse, "--attainment-bound", "0.1"]) == 0
    assert main([worse, was]) == 0  # a gain is none
    write_points(tmp_path / "dead" / "tables" / "test.csv", [{**r, "verdict": "SERVER-FAILED"} for r in rows("A", 0)])
    assert main([was, str(tmp_path / "dead")]) == 1
    capsys.readouterr()
    for mistake in (
        [was, str(tmp_path / "nowhere")],
        [was, same, "--experiment", "x"],
        [was, same, "--goodput-bound", "2"],
    ):
        assert main(mistake) == 2
        assert len(capsys.readouterr().err.strip().splitlines()) == 1
    assert main([was, str(tmp_path / "other")]) == 2
    assert "was (A) and " in (told := capsys.readouterr().err)
    assert "other (A, alpha=0.5) have no valid point in common" in told
