"""Which rows of a trace come in: order, ties, zero and bad rows, absurd rates; and the report of it."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal

from engine.core.trace import Trace, TraceRow
from workloads.traces.errors import BadRow, TraceError

LOWEST_RATE_RPS = 0.01
HIGHEST_RATE_RPS = 1000.0
"""Mean rates outside these bounds speak of a wrong unit (ms read as s, or the reverse) rather than of a service."""

RowPolicy = Literal["fail", "drop"]


@dataclass(frozen=True, slots=True)
class AdmissionRules:
    """What becomes of rows that cannot be replayed.

    bad_rows: rows that are not what the format promises: fail the load, or drop them, counted.
    zero_rows: rows with no input or no output tokens (a failed request in BurstGPT): drop, counted, or fail.
    max_rows: read so many rows and no more (the week-long traces have millions); None = all.
    any_rate: let a mean rate pass that looks like a wrong unit.
    """

    bad_rows: RowPolicy = "fail"
    zero_rows: RowPolicy = "drop"
    max_rows: int | None = None
    any_rate: bool = False

    def __post_init__(self) -> None:
        if self.max_rows is not None and self.max_rows < 1:
            raise TraceError(f"max_rows must be at least 1, got {self.max_rows}")


@dataclass(frozen=True, slots=True)
class RawRow:
    """A row as its format gives it. at_ns: instant on the trace's own clock; line: where it stands in the file."""

    line: int
    at_ns: int
    input_tokens: int
    output_tokens: int
    task: str = ""


@dataclass(frozen=True, slots=True)
class AdmissionReport:
    """What a load found and did. mean_rate_rps: requests per second over the span; None where it has no meaning.

    order_inversions: rows that stand before one of an earlier instant; whole rows are sorted, equal instants keep
        the order of the file. ties: rows with the instant of the row before them, after sorting.
    bad_examples: the first few bad rows, as "line: sentence". stopped_early: max_rows ended the reading.
    """

    source: str
    rows_read: int
    rows_kept: int
    span_s: float
    mean_rate_rps: float | None
    order_inversions: int
    ties: int
    zero_input_rows: int
    zero_output_rows: int
    bad_rows: int
    longest_input_tokens: int
    bad_examples: tuple[str, ...] = ()
    stopped_early: bool = False
    notes: tuple[str, ...] = ()

    def text(self) -> str:
        """A few lines for a person."""
        rate = "no mean rate" if self.mean_rate_rps is None else f"{self.mean_rate_rps:.4g} requests/s"
        read = f"the first {self.rows_read} rows read" if self.stopped_early else f"{self.rows_read} rows read"
        lines = [
            f"{self.source}: {read}, {self.rows_kept} kept; span {self.span_s:.6g} s, {rate}; "
            f"longest input {self.longest_input_tokens} tokens",
            f"  order: {self.order_inversions} inversions (sorted, ties keep their order), {self.ties} ties",
            f"  dropped: {self.bad_rows} bad, {self.zero_input_rows} without input, "
            f"{self.zero_output_rows} without output",
        ]
        lines += [f"  bad row {example}" for example in self.bad_examples]
        lines += [f"  {note}" for note in self.notes]
        return "\n".join(lines)


def admit(
    name: str,
    source: str | Path,
    parsed: Iterable[tuple[int, RawRow | BadRow]],
    rules: AdmissionRules,
    notes: tuple[str, ...] = (),
) -> tuple[Trace, AdmissionReport]:
    """Rows with their line numbers -> a trace that starts at 0 s, and the report. Raises TraceError."""
    source = _shown(source)
    rows, bad, zero_input, zero_output, read, stopped = [], [], 0, 0, 0, False
    for line, row in parsed:
        if rules.max_rows is not None and read == rules.max_rows:
            stopped = True
            break
        read += 1
        if isinstance(row, BadRow):
            if rules.bad_rows == "fail":
                raise TraceError(f"{source}:{line}: {row.sentence}")
            bad.append(f"{line}: {row.sentence}")
        elif row.input_tokens == 0 or row.output_tokens == 0:
            side = "input" if row.input_tokens == 0 else "output"
            if rules.zero_rows == "fail":
                raise TraceError(f"{source}:{line}: no {side} tokens")
            zero_input += side == "input"
            zero_output += side == "output"
        else:
            rows.append(row)
    if not rows:
        raise TraceError(f"{source} has no usable row ({read} read)")
    inversions = sum(later.at_ns < earlier.at_ns for earlier, later in pairwise(rows))
    rows.sort(key=lambda row: row.at_ns)  # stable: ties keep the order of the file
    ties = sum(later.at_ns == earlier.at_ns for earlier, later in pairwise(rows))
    origin = rows[0].at_ns
    trace = Trace(
        name, tuple(TraceRow((r.at_ns - origin) / 1e9, r.input_tokens, r.output_tokens, r.task) for r in rows)
    )
    rate = mean_rate_rps(len(rows), trace.span_s)
    if not rules.any_rate:
        _refuse_absurd_rate(source, rate, len(rows), trace.span_s)
    return trace, AdmissionReport(
        source=source,
        rows_read=read,
        rows_kept=len(rows),
        span_s=trace.span_s,
        mean_rate_rps=rate,
        order_inversions=inversions,
        ties=ties,
        zero_input_rows=zero_input,
        zero_output_rows=zero_output,
        bad_rows=len(bad),
        longest_input_tokens=max(row.input_tokens for row in rows),
        bad_examples=tuple(bad[:3]),
        stopped_early=stopped,
        notes=notes,
    )


def mean_rate_rps(rows: int, span_s: float) -> float | None:
    """Gaps per second of span: (rows - 1) / span; None without a span."""
    return (rows - 1) / span_s if span_s > 0 else None


def _shown(path: str | Path) -> str:
    """The path as a person at this folder would type it; reports are kept, so no machine's folders in them."""
    full = Path(path)
    return str(full.relative_to(Path.cwd()) if full.is_absolute() and full.is_relative_to(Path.cwd()) else full)


def _refuse_absurd_rate(source: str, rate: float | None, rows: int, span_s: float) -> None:
    if rows < 2 or (rate is not None and LOWEST_RATE_RPS <= rate <= HIGHEST_RATE_RPS):
        return
    found = "all rows at one instant" if rate is None else f"a mean rate of {rate:.4g} requests/s"
    raise TraceError(
        f"{source}: {found} ({rows} rows over {span_s:.6g} s) looks like a wrong column or unit of arrival; "
        f"set any_rate=true if it is meant"
    )
