"""From a point table to one row of max goodput per series, beside its ratio to a reference series."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from harness.measurement.crossing import TARGET, MaxGoodput
from harness.measurement.goodput import RatePoint, goodput_ratio, max_goodput
from harness.measurement.table_file import Row, TableError, cell, write_table
from harness.measurement.uncertainty import Interval
from harness.measurement.verdict import Verdict
from harness.measurement.worst_class import max_goodput_worst_class

GROUP_COLUMNS = (
    "experiment", "workload", "protocol", "model", "device", "source",
    "length_scale", "slo_scale", "slo_speed_factor",
)  # fmt: skip
"""Series are held against each other within these settings only."""

SERIES_COLUMNS = ("system", "policy", "granularity", "chunk_tokens", "batching", "backend")
"""What a series is made of: one value of each within a series of a group."""

MAX_GOODPUT_COLUMNS = (
    *GROUP_COLUMNS,
    "series",
    *SERIES_COLUMNS,
    "target",
    "seeds",
    "rates",
    "points",
    "points_left_out",
    "max_goodput_rps",
    "max_goodput_low_rps",
    "max_goodput_high_rps",
    "max_goodput_rate_scale",
    "max_goodput_low_rate_scale",
    "max_goodput_high_rate_scale",
    "max_goodput_bound",
    "max_goodput_worst_class_rps",
    "max_goodput_worst_class_low_rps",
    "max_goodput_worst_class_high_rps",
    "max_goodput_worst_class_rate_scale",
    "max_goodput_worst_class_low_rate_scale",
    "max_goodput_worst_class_high_rate_scale",
    "max_goodput_worst_class_bound",
    "worst_class",
    "worst_class_requests",
    "worst_class_few_requests",
    "reference",
    "ratio",
    "ratio_low",
    "ratio_high",
    "ratio_bound",
    "ratio_seeds",
)
"""Columns of a max goodput table; the ..._bound ones are empty for numbers and name the bound else.

worst_class: the class that sets max_goodput_worst_class, with its pooled requests and whether they are too few.
"""


def max_goodput_table(
    points: Iterable[Row], reference: str | None = None, target: float = TARGET
) -> list[OrderedDict[str, object]]:
    """One row per series of each group, from the rows of a point table (values or text).

    reference: the series all others are held against; None, or where a group lacks it: no ratio.
    Points whose verdict is not VALID are left out and counted. A series with no valid point keeps its row, empty.
    Raises TableError when a series mixes settings or a seed has two points at one rate.
    """
    groups: dict[tuple[str, ...], dict[str, list[Mapping[str, str]]]] = {}
    for row in points:
        text = {name: cell(value) for name, value in row.items()}
        series = groups.setdefault(tuple(text[name] for name in GROUP_COLUMNS), {})
        series.setdefault(text["series"], []).append(text)
    return [
        _series_row(name, rows, series.get(reference) if reference is not None else None, reference, target)
        for _, series in sorted(groups.items())
        for name, rows in sorted(series.items())
    ]


def write_max_goodput(path: Path, rows: Iterable[Row]) -> None:
    """Write a max goodput table whole."""
    write_table(path, rows, MAX_GOODPUT_COLUMNS)


def rate_points(rows: Iterable[Mapping[str, str]], column: str = "attainment") -> list[RatePoint]:
    """The valid points of one series that have the column, by rate_scale."""
    return [
        RatePoint(int(row["seed"]), float(row["rate_scale"]), float(row[column]))
        for row in rows
        if row["verdict"] == Verdict.VALID and row.get(column, "") != ""
    ]


def _series_row(
    name: str,
    rows: Sequence[Mapping[str, str]],
    reference_rows: Sequence[Mapping[str, str]] | None,
    reference: str | None,
    target: float,
) -> OrderedDict[str, object]:
    for column in SERIES_COLUMNS:
        if len({row[column] for row in rows}) > 1:
            raise TableError(f"series {name!r} mixes several values of {column}; give each a series of its own")
    valid = rate_points(rows)
    row: OrderedDict[str, object] = OrderedDict((c, rows[0][c]) for c in (*GROUP_COLUMNS, "series", *SERIES_COLUMNS))
    row.update(
        target=target,
        seeds=len({point.seed for point in valid}),
        rates=len({point.rate for point in valid}),
        points=len(valid),
        points_left_out=len(rows) - len(valid),
    )
    try:
        row.update(_goodput_cells(rows, valid, target))
        if reference is not None and reference_rows is not None and reference != name:
            row.update(_ratio_cells(valid, rate_points(reference_rows), reference, target))
    except ValueError as error:
        raise TableError(f"series {name!r}: {error}") from error
    return row


def _goodput_cells(rows: Sequence[Mapping[str, str]], valid: Sequence[RatePoint], target: float) -> dict[str, object]:
    if not valid:
        return {}
    # One request has no rate: then there is a max goodput in multiples of the trace's rate only.
    per_scale = _rps_per_scale([row for row in rows if row["verdict"] == Verdict.VALID])
    units = {"rate_scale": 1.0, **({"rps": per_scale} if per_scale > 0 else {})}
    cells = _in_units("max_goodput", *max_goodput(valid, target), units)
    worst = max_goodput_worst_class(rows, target)
    if worst is not None:
        cells.update(_in_units("max_goodput_worst_class", worst.found, worst.interval, units))
        cells.update(
            worst_class=worst.decided_by.name,
            worst_class_requests=worst.decided_by.requests,
            worst_class_few_requests=worst.decided_by.few_requests,
        )
    return cells


def _in_units(name: str, found: MaxGoodput, ends: Interval | None, units: Mapping[str, float]) -> dict[str, object]:
    cells: dict[str, object] = {f"{name}_bound": found.bound}
    for unit, factor in units.items():
        cells[f"{name}_{unit}"] = found.known * factor
        cells[f"{name}_low_{unit}"] = None if ends is None else ends.low * factor
        cells[f"{name}_high_{unit}"] = None if ends is None else ends.high * factor
    return cells


def _rps_per_scale(rows: Sequence[Mapping[str, str]]) -> float:
    """Requests per second at rate_scale 1, averaged over the points (random arrivals differ by seed)."""
    ratios = [float(row["rate_rps"]) / float(row["rate_scale"]) for row in rows]
    return sum(ratios) / len(ratios)


def _ratio_cells(
    valid: Sequence[RatePoint], reference_points: Sequence[RatePoint], reference: str, target: float
) -> dict[str, object]:
    if not {p.seed for p in valid} & {p.seed for p in reference_points}:
        return {"reference": reference, "ratio_seeds": 0}
    ratio = goodput_ratio(valid, reference_points, target)
    return {
        "reference": reference,
        "ratio": ratio.known,
        "ratio_low": None if ratio.interval is None else ratio.interval.low,
        "ratio_high": None if ratio.interval is None else ratio.interval.high,
        "ratio_bound": ratio.bound,
        "ratio_seeds": ratio.seeds,
    }
