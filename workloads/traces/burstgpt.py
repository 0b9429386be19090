"""BurstGPT: CSV of Timestamp (s), Model, Request tokens, Response tokens, Total tokens, Log Type; no classes.

Newer files add session and elapsed columns; they are ignored. A failed request has 0 response tokens.
"""

from pathlib import Path

from engine.core.trace import Trace
from workloads.traces.admission import AdmissionReport, AdmissionRules, admit
from workloads.traces.plain_rows import plain_rows
from workloads.traces.rows import csv_rows

COLUMNS = ("Timestamp", "Request tokens", "Response tokens")


def load_burstgpt(
    path: str | Path, *, name: str = "burstgpt", rules: AdmissionRules | None = None
) -> tuple[Trace, AdmissionReport]:
    """Failed requests (0 response tokens) go the way of `rules.zero_rows`."""
    rows = plain_rows(csv_rows(path, COLUMNS), COLUMNS[0], "s", *COLUMNS[1:])
    return admit(name, path, rows, rules or AdmissionRules())
