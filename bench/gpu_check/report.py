"""What the check found: a line per fact, tables with the details, and the table a person reads last."""

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from harness.measurement.table_file import cell, write_whole


@dataclass(frozen=True, slots=True)
class Line:
    """One fact. value: None = there is no number. wanted: what must hold, "" = a number and no more.

    passed: None = not judged.
    """

    part: str
    what: str
    value: float | None
    unit: str
    wanted: str
    passed: bool | None

    @property
    def verdict(self) -> str:
        """pass, FAIL, or number."""
        return "number" if self.passed is None else "pass" if self.passed else "FAIL"


@dataclass
class Report:
    """Collects lines and tables, and writes them. judge_speed: whether what must hold of speed is judged here."""

    judge_speed: bool
    lines: list[Line] = field(default_factory=list)
    tables: dict[str, list[Mapping[str, object]]] = field(default_factory=dict)
    part: str = ""

    def must(self, what: str, passed: bool, wanted: str, value: float | None = None, unit: str = "") -> None:
        """Something that holds on every device, at every size."""
        self.lines.append(Line(self.part, what, value, unit, wanted, passed))

    def speed(self, what: str, value: float, unit: str, wanted: str, passed: bool) -> None:
        """Something that must hold on a GPU at the sizes of real models; elsewhere it is a number."""
        self.lines.append(Line(self.part, what, value, unit, wanted, passed if self.judge_speed else None))

    def number(self, what: str, value: float, unit: str = "") -> None:
        """Something to know."""
        self.lines.append(Line(self.part, what, value, unit, "", None))

    def row(self, table: str, **cells: object) -> None:
        """Add a row to a table of details."""
        self.tables.setdefault(table, []).append(cells)

    @property
    def missed(self) -> list[str]:
        """What must hold and does not."""
        return [f"{line.part}: {line.what}" for line in self.lines if line.passed is False]

    def text(self) -> str:
        """The table, a line per fact."""
        shown = [("part", "what", "value", "must be", "")]
        shown += [(one.part, one.what, _value(one), one.wanted, one.verdict) for one in self.lines]
        widths = [max(len(row[i]) for row in shown) for i in range(5)]
        return "\n".join(
            "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in shown
        )

    def write(self, folder: Path, facts: Mapping[str, Any]) -> None:
        """results.json, summary.csv and a CSV for each table; written after each part, whole each time."""
        content = {
            **facts,
            "missed": self.missed,
            "lines": [asdict(line) for line in self.lines],
            "tables": self.tables,
        }
        write_whole(folder / "results.json", (json.dumps(content, indent=1) + "\n").encode())
        _write_csv(folder / "summary.csv", [{**asdict(line), "verdict": line.verdict} for line in self.lines])
        for name, rows in self.tables.items():
            _write_csv(folder / f"{name}.csv", rows)


def _value(line: Line) -> str:
    return "" if line.value is None else f"{line.value:.4g} {line.unit}".rstrip()


def _write_csv(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Rows in the order they were found in: that of the check."""
    if not rows:
        return
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: cell(value) for name, value in row.items()} for row in rows)
    partial.replace(path)
