"""Azure LLM inference traces of 2023 and 2024: CSV of TIMESTAMP, ContextTokens, GeneratedTokens; no classes."""

from pathlib import Path

from engine.core.trace import Trace
from workloads.traces.admission import AdmissionReport, AdmissionRules, admit
from workloads.traces.plain_rows import plain_rows
from workloads.traces.rows import csv_rows

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


def load_azure(
    path: str | Path, *, name: str = "azure", rules: AdmissionRules | None = None
) -> tuple[Trace, AdmissionReport]:
    """Both years: stamps with 7 fractional digits or none, with `+00:00` (2024) or without an offset (2023)."""
    rows = plain_rows(csv_rows(path, COLUMNS), COLUMNS[0], "timestamp", *COLUMNS[1:])
    return admit(name, path, rows, rules or AdmissionRules())
