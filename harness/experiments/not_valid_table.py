"""The table NAME_not_valid.csv: every measurement that says nothing of its server, and why; none = no such file."""

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from harness.measurement.goodput_table import GROUP_COLUMNS
from harness.measurement.store import Point
from harness.measurement.table_file import Row, write_table
from harness.measurement.verdict import Verdict

COLUMNS = (
    "point", "try", *GROUP_COLUMNS, "series", "rate_scale", "rate_rps", "seed", "verdict", "verdict_reason", "says",
)  # fmt: skip
"""try: empty for the point's last measurement, which the point table has too; else the number of an earlier one, which
was measured again. verdict_reason: the first check that tripped; says: its sentence."""


def not_valid_row(point: Point, number: int | None) -> Row | None:
    """None for a VALID measurement."""
    judged = point.judged()
    if judged.verdict is Verdict.VALID:
        return None
    facts, first = asdict(point.facts), judged.tripped[0]
    return {
        **{name: facts[name] for name in COLUMNS if name in facts},
        "try": number,
        "verdict": judged.verdict.value,
        "verdict_reason": first.name,
        "says": first.says,
    }


def write_not_valid(tables: Path, experiment: str, rows: Iterable[Row]) -> Path | None:
    """Write the table whole; returns its path. Without rows it is removed: an older one would speak of other points."""
    path, rows = tables / f"{experiment}_not_valid.csv", list(rows)
    if not rows:
        path.unlink(missing_ok=True)
        return None
    write_table(path, rows, COLUMNS)
    return path
