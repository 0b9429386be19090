"""CSV of lengths in order of arrival, without instants: order, type, input_length, output_length.

The instants are generated: a Poisson process of `rate_rps`, drawn by `arrival_seed` and stretched so that the mean
rate is exactly `rate_rps`. The plan's own `arrivals=poisson|gamma` draws them anew for each seed of a run.
"""

import random
from collections.abc import Iterator
from pathlib import Path

from engine.core.trace import Trace
from workloads.arrivals import generated_arrivals_s
from workloads.traces.admission import AdmissionReport, AdmissionRules, RawRow, admit
from workloads.traces.cells import cell, token_count
from workloads.traces.errors import BadRow, TraceError
from workloads.traces.rows import csv_rows

COLUMNS = ("order", "type", "input_length", "output_length")

Parsed = tuple[int, RawRow | BadRow]


def load_lengths(
    path: str | Path,
    *,
    name: str = "lengths",
    rate_rps: float = 2.75,
    arrival_seed: int = 0,
    rules: AdmissionRules | None = None,
) -> tuple[Trace, AdmissionReport]:
    """rate_rps: mean rate of the generated arrivals (2.75: QwenTrace A at scale 1, paper set-up)."""
    if not rate_rps > 0:
        raise TraceError(f"rate_rps must be above 0, got {rate_rps}")
    parsed = sorted(_rows(path), key=lambda item: item[1].at_ns if isinstance(item[1], RawRow) else -1)
    kept = sum(isinstance(row, RawRow) for _, row in parsed)
    rng = random.Random(f"lengths arrivals {arrival_seed}")
    instants = iter(generated_arrivals_s(kept, (kept - 1) / rate_rps, 1.0, rng))
    timed = [(line, _at(row, next(instants)) if isinstance(row, RawRow) else row) for line, row in parsed]
    notes = (f"arrivals generated: Poisson, {rate_rps:g} requests/s, arrival_seed {arrival_seed}",)
    return admit(name, path, timed, rules or AdmissionRules(), notes)


def _rows(path: str | Path) -> Iterator[Parsed]:
    """Rows with `order` in the place of the instant."""
    for line, row in csv_rows(path, COLUMNS):
        if isinstance(row, BadRow):
            yield line, row
            continue
        try:
            order, task = token_count(row, "order"), str(cell(row, "type"))
            yield line, RawRow(line, order, token_count(row, "input_length"), token_count(row, "output_length"), task)
        except BadRow as bad:
            yield line, bad


def _at(row: RawRow, instant_s: float) -> RawRow:
    return RawRow(row.line, round(instant_s * 1e9), row.input_tokens, row.output_tokens, row.task)
