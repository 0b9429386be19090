"""BurstGPT: CSV of Timestamp (s), Model, Request tokens, Response tokens, Total tokens, Log Type; no classes.

Newer files add session and elapsed columns; they are ignored. A failed request has 0 response tokens.
"""

from collections.abc import Iterator
from pathlib import Path

from engine.core.trace import Trace
from workloads.traces.admission import AdmissionReport, AdmissionRules, RawRow, admit
from workloads.traces.cells import arrival_ns, token_count
from workloads.traces.errors import BadRow
from workloads.traces.rows import csv_rows

COLUMNS = ("Timestamp", "Request tokens", "Response tokens")


def load_burstgpt(
    path: str | Path, *, name: str = "burstgpt", rules: AdmissionRules | None = None
) -> tuple[Trace, AdmissionReport]:
    """Failed requests (0 response tokens) go the way of `rules.zero_rows`."""
    return admit(name, path, _rows(path), rules or AdmissionRules())


def _rows(path: str | Path) -> Iterator[tuple[int, RawRow | BadRow]]:
    for line, row in csv_rows(path, COLUMNS):
        if isinstance(row, BadRow):
            yield line, row
            continue
        try:
            at_ns = arrival_ns(row, "Timestamp", "s")
            yield line, RawRow(line, at_ns, token_count(row, "Request tokens"), token_count(row, "Response tokens"))
        except BadRow as bad:
            yield line, bad
