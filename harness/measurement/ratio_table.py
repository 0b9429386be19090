"""Every pair of series of an experiment, held against each other: the ratio of their max goodputs, seeds paired."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from itertools import permutations
from pathlib import Path

from harness.measurement.crossing import TARGET
from harness.measurement.goodput import goodput_ratio
from harness.measurement.goodput_table import GROUP_COLUMNS, rate_points
from harness.measurement.table_file import Row, cell, write_table

RATIO_COLUMNS = (
    *GROUP_COLUMNS, "target", "series", "reference", "ratio", "ratio_low", "ratio_high", "ratio_bound", "seeds",
)  # fmt: skip
"""ratio_bound: empty for a number; at_least or at_most where a series never crosses the target."""


def ratio_table(points: Iterable[Row], target: float = TARGET) -> list[OrderedDict[str, object]]:
    """One row per ordered pair of series that share seeds, within the settings that make a group.

    points: rows of a point table (values or text); those whose verdict is not VALID are left out. A pair of which
    neither member has a max goodput within the rates tried has no row: nothing can be said.
    """
    groups: dict[tuple[str, ...], dict[str, list[Mapping[str, str]]]] = {}
    for row in points:
        text = {name: cell(value) for name, value in row.items()}
        series = groups.setdefault(tuple(text[name] for name in GROUP_COLUMNS), {})
        series.setdefault(text["series"], []).append(text)
    found = []
    for group, series in sorted(groups.items()):
        valid = {name: rate_points(rows) for name, rows in sorted(series.items())}
        for one, other in permutations(valid, 2):
            if not {p.seed for p in valid[one]} & {p.seed for p in valid[other]}:
                continue
            ratio = goodput_ratio(valid[one], valid[other], target)
            if ratio.bound == "unknown":
                continue
            row = OrderedDict(zip(GROUP_COLUMNS, group, strict=True))
            row.update(
                target=target,
                series=one,
                reference=other,
                ratio=ratio.known,
                ratio_low=None if ratio.interval is None else ratio.interval.low,
                ratio_high=None if ratio.interval is None else ratio.interval.high,
                ratio_bound=ratio.bound,
                seeds=ratio.seeds,
            )
            found.append(row)
    return found


def write_ratios(path: Path, rows: Iterable[Row]) -> None:
    """Write a ratio table whole."""
    write_table(path, rows, RATIO_COLUMNS)
