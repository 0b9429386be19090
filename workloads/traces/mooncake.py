"""Mooncake (FAST'25 release): JSON lines of timestamp (ms), input_length, output_length, hash_ids; no classes.

Stamps come in bins of about 3 s: many rows share one, and scaling the rate keeps those bursts.
"""

from collections.abc import Iterator
from pathlib import Path

from engine.core.trace import Trace
from workloads.traces.admission import AdmissionReport, AdmissionRules, RawRow, admit
from workloads.traces.cells import arrival_ns, token_count
from workloads.traces.errors import BadRow
from workloads.traces.rows import jsonl_rows


def load_mooncake(
    path: str | Path, *, name: str = "mooncake", rules: AdmissionRules | None = None
) -> tuple[Trace, AdmissionReport]:
    """The prompt's block hashes are not used: prompts are drawn by seed."""
    return admit(name, path, _rows(path), rules or AdmissionRules())


def _rows(path: str | Path) -> Iterator[tuple[int, RawRow | BadRow]]:
    for line, row in jsonl_rows(path):
        if isinstance(row, BadRow):
            yield line, row
            continue
        try:
            at_ns = arrival_ns(row, "timestamp", "ms")
            yield line, RawRow(line, at_ns, token_count(row, "input_length"), token_count(row, "output_length"))
        except BadRow as bad:
            yield line, bad
