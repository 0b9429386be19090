"""Azure LLM inference traces of 2023 and 2024: CSV of TIMESTAMP, ContextTokens, GeneratedTokens; no classes."""

from collections.abc import Iterator
from pathlib import Path

from engine.core.trace import Trace
from workloads.traces.admission import AdmissionReport, AdmissionRules, RawRow, admit
from workloads.traces.cells import arrival_ns, token_count
from workloads.traces.errors import BadRow
from workloads.traces.rows import csv_rows

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


def load_azure(
    path: str | Path, *, name: str = "azure", rules: AdmissionRules | None = None
) -> tuple[Trace, AdmissionReport]:
    """Both years: stamps with 7 fractional digits or none, with `+00:00` (2024) or without an offset (2023)."""
    return admit(name, path, _rows(path), rules or AdmissionRules())


def _rows(path: str | Path) -> Iterator[tuple[int, RawRow | BadRow]]:
    for line, row in csv_rows(path, COLUMNS):
        if isinstance(row, BadRow):
            yield line, row
            continue
        try:
            at_ns = arrival_ns(row, "TIMESTAMP", "timestamp")
            yield line, RawRow(line, at_ns, token_count(row, "ContextTokens"), token_count(row, "GeneratedTokens"))
        except BadRow as bad:
            yield line, bad
