"""Mooncake (FAST'25 release): JSON lines of timestamp (ms), input_length, output_length, hash_ids; no classes.

Stamps come in bins of about 3 s: many rows share one, and scaling the rate keeps those bursts.
"""

from pathlib import Path

from engine.core.trace import Trace
from workloads.traces.admission import AdmissionReport, AdmissionRules, admit
from workloads.traces.plain_rows import plain_rows
from workloads.traces.rows import jsonl_rows


def load_mooncake(
    path: str | Path, *, name: str = "mooncake", rules: AdmissionRules | None = None
) -> tuple[Trace, AdmissionReport]:
    """The prompt's block hashes are not used: prompts are drawn by seed."""
    rows = plain_rows(jsonl_rows(path), "timestamp", "ms", "input_length", "output_length")
    return admit(name, path, rows, rules or AdmissionRules())
