"""The command: python -m harness.experiments.compare A B. Did B lose against A?

A, B: folders of results (the one that has `tables/`), or two point tables. Points are paired by settings, rate and
seed. Exit status 1 when a loss goes beyond the bounds and its interval excludes chance, or when a server failed that
had not, 2 for a mistake, 0 otherwise: fit for a lab's CI.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from engine.core.command_line import MISTAKE_STATUS, OneSentenceParser, run_command

if TYPE_CHECKING:
    from harness.measurement.comparison import Comparison
    from harness.measurement.uncertainty import Interval

REGRESSION_STATUS = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    given = _parser().parse_args(arguments)

    from harness.measurement.comparison import Bounds, compare
    from harness.measurement.table_file import TableError

    try:
        bounds = Bounds(given.attainment_bound, given.goodput_bound)
        first, second = _points(given.first, given.experiment), _points(given.second, given.experiment)
        found = compare(first, second)
    except (TableError, ValueError) as error:
        print(f"compare: {error}", file=sys.stderr)
        return MISTAKE_STATUS
    if not found.attainment and not found.failures:
        print(
            f"compare: {given.first} ({_series(first)}) and {given.second} ({_series(second)}) have no valid point in "
            "common; points are paired by settings, rate and seed",
            file=sys.stderr,
        )
        return MISTAKE_STATUS
    print(_text(found))
    regressions = found.regressions(bounds)
    for sentence in regressions:
        print(f"REGRESSION {sentence}")
    return REGRESSION_STATUS if regressions else 0


def _parser() -> argparse.ArgumentParser:
    parser = OneSentenceParser(
        prog="python -m harness.experiments.compare",
        description="Hold result set B against A: paired differences with intervals; exit status 1 on a regression.",
    )
    parser.add_argument("first", type=Path, metavar="A", help="a folder of results, or a point table: what was")
    parser.add_argument("second", type=Path, metavar="B", help="the same: what is")
    parser.add_argument("--experiment", help="compare this experiment only (default: all that both have)")
    parser.add_argument(
        "--attainment-bound", type=float, default=0.02, help="loss of attainment still allowed (default: 0.02)"
    )
    parser.add_argument(
        "--goodput-bound",
        type=float,
        default=0.05,
        help="share of max goodput still allowed to be lost (default: 0.05)",
    )
    return parser


def _points(given: Path, experiment: str | None) -> list[dict[str, str]]:
    """The rows of a table, or of all point tables of a folder. Raises TableError."""
    from harness.measurement.table_file import TableError, read_table

    if not given.is_dir():
        tables = [given]
    else:
        tables = sorted((given / "tables").glob(f"{experiment or '*'}.csv*"))
        if not tables:
            raise TableError(f"{given} has no table {'tables/' + experiment + '.csv' if experiment else 'in tables/'}")
    rows = [read_table(table) for table in tables]
    points = [row for table in rows for row in table if {"point", "attainment", "verdict"} <= row.keys()]
    chosen = [row for row in points if experiment is None or row["experiment"] == experiment]
    if not chosen:
        raise TableError(f"{given} has no points{f' of experiment {experiment}' if experiment else ''}")
    return chosen


def _series(points: Sequence[Mapping[str, str]]) -> str:
    return "; ".join(sorted({row["series"] for row in points}))


def _text(found: "Comparison") -> str:
    lines = [f"{'rate':>8}  {'A':>7}  {'B':>7}  {'B - A':>8}  {'interval':<20}  {'seeds':>5}  series"]
    for one in found.attainment:
        lines.append(
            f"{one.rate_scale:8g}  {one.first:7.4f}  {one.second:7.4f}  {one.difference:+8.4f}  "
            f"{_ends(one.interval, '+.4f'):<20}  {one.seeds:5d}  {one.series}"
        )
    for one_ratio in found.goodput:
        known, bound = one_ratio.ratio.known, one_ratio.ratio.bound.replace("_", " ")
        lines.append(
            f"max goodput B / A {bound + ' ' if bound else ''}{known:.3f} {_ends(one_ratio.ratio.interval, '.3f')} "
            f"{one_ratio.series}"
        )
    if found.unpaired:
        lines.append(f"{found.unpaired} points stand alone: only one side has them, or one side's is not VALID")
    return "\n".join(lines)


def _ends(interval: "Interval | None", form: str) -> str:
    return "one seed" if interval is None else f"[{interval.low:{form}}, {interval.high:{form}}]"


if __name__ == "__main__":
    sys.exit(run_command(main))
