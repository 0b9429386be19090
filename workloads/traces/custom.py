"""A user's own trace: CSV with a header, or JSON lines, with the columns named by the user."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from engine.core.trace import Trace
from workloads.traces.admission import AdmissionReport, AdmissionRules, RawRow, admit
from workloads.traces.cells import ArrivalUnit, arrival_ns, cell, token_count
from workloads.traces.errors import BadRow, TraceError
from workloads.traces.rows import Line, csv_rows, jsonl_rows

ROLES = ("arrival", "input", "output", "class")

DEFAULT_COLUMNS: Mapping[str, str | None] = {
    "arrival": "arrival_s",
    "input": "input_tokens",
    "output": "output_tokens",
    "class": None,
}

JSON_LINES = (".jsonl", ".ndjson")


def load_custom(
    path: str | Path,
    *,
    name: str = "csv",
    columns: Mapping[str, str | None] | None = None,
    arrival_unit: ArrivalUnit = "s",
    rules: AdmissionRules | None = None,
) -> tuple[Trace, AdmissionReport]:
    """columns: role -> column name, for the roles arrival, input, output, class; a role left out keeps its default.

    output None: every request asks for 1 token. class None: no classes (use SLOs by length, or uniform ones).
    arrival_unit: s, ms, or timestamp (a date and time). A path that ends in .jsonl is read as JSON lines.
    """
    named = {**DEFAULT_COLUMNS, **(columns or {})}
    unknown = sorted(set(named) - set(ROLES))
    if unknown:
        raise TraceError(f"columns.{unknown[0]} is not known: the roles are {', '.join(ROLES)}")
    if named["arrival"] is None or named["input"] is None:
        raise TraceError("columns.arrival and columns.input must each name a column")
    lines = jsonl_rows(path) if Path(path).suffix in JSON_LINES else csv_rows(path, [c for c in named.values() if c])
    return admit(name, path, _rows(lines, named, arrival_unit), rules or AdmissionRules())


def _rows(
    lines: Iterator[Line], columns: Mapping[str, str | None], unit: ArrivalUnit
) -> Iterator[tuple[int, RawRow | BadRow]]:
    arrival, prompt, output, task = (columns[role] for role in ROLES)
    assert arrival is not None
    assert prompt is not None
    for line, row in lines:
        if isinstance(row, BadRow):
            yield line, row
            continue
        try:
            yield (
                line,
                RawRow(
                    line,
                    arrival_ns(row, arrival, unit),
                    token_count(row, prompt),
                    1 if output is None else token_count(row, output),
                    "" if task is None else str(cell(row, task)).strip(),
                ),
            )
        except BadRow as bad:
            yield line, bad
