"""The part of a trace that is replayed: a window in time, a bound on lengths, and repetition if asked for."""

from dataclasses import dataclass, replace
from typing import Literal

from engine.core.trace import Trace, TraceRow
from workloads.traces.admission import mean_rate_rps
from workloads.traces.errors import TraceError

OverLong = Literal["drop", "clip", "fail"]

MOST_REPEATED_ROWS = 10_000_000


@dataclass(frozen=True, slots=True)
class WindowSettings:
    """Times in the trace's own seconds, lengths in trace tokens.

    window_start_s, window_s: rows with start <= arrival < start + window_s; window_s None = to the end.
    max_input: longest input admitted; over_long: what becomes of longer rows (clip = cut to max_input).
    repeat_to_s: repeat the window, whole, until arrivals fill this many seconds; None = never repeat.
    """

    window_start_s: float = 0.0
    window_s: float | None = 120.0
    max_input: int = 16384
    over_long: OverLong = "drop"
    repeat_to_s: float | None = None

    def __post_init__(self) -> None:
        if self.window_start_s < 0:
            raise TraceError(f"window_start_s must be at least 0, got {self.window_start_s}")
        for name, value in (("window_s", self.window_s), ("repeat_to_s", self.repeat_to_s)):
            if value is not None and not value > 0:
                raise TraceError(f"{name} must be above 0, got {value}")
        if self.max_input < 1:
            raise TraceError(f"max_input must be at least 1, got {self.max_input}")


@dataclass(frozen=True, slots=True)
class WindowReport:
    """What a cut found and did. covered_s: from the window's start to its last row; period_s: of a repetition."""

    asked_s: float | None
    covered_s: float
    rows_in_window: int
    rows_over_long: int
    over_long: OverLong
    max_input: int
    rows_repeated: int
    period_s: float
    rows: int
    rate_rps: float | None

    def text(self) -> str:
        """A few lines for a person."""
        asked = "to the end of the trace" if self.asked_s is None else f"{self.asked_s:g} s asked"
        rate = "no mean rate" if self.rate_rps is None else f"{self.rate_rps:.4g} requests/s at rate_scale 1"
        verb = "clipped" if self.over_long == "clip" else "dropped"
        lines = [
            f"window: {asked}, rows reach {self.covered_s:.6g} s; {self.rows_in_window} rows in it, "
            f"{self.rows_over_long} over {self.max_input} input tokens ({verb}); {self.rows} replayed, {rate}"
        ]
        if self.rows_repeated:
            lines.append(f"  {self.rows_repeated} of them are repetitions, one period every {self.period_s:g} s")
        return "\n".join(lines)


def cut_window(trace: Trace, settings: WindowSettings) -> tuple[Trace, WindowReport]:
    """The rows to replay, their arrivals counted from the window's start; and the report. Raises TraceError.

    A trace shorter than the window yields what it has; the report says so, and nothing is repeated unasked.
    """
    start = settings.window_start_s
    end = float("inf") if settings.window_s is None else start + settings.window_s
    inside = [replace(row, arrival_s=row.arrival_s - start) for row in trace.rows if start <= row.arrival_s < end]
    if not inside:
        raise TraceError(f"{trace.name}: no row between {start:g} and {end:g} s; the trace spans {trace.span_s:.6g} s")
    long = sum(row.input_tokens > settings.max_input for row in inside)
    kept = _bounded(trace.name, inside, settings)
    period = settings.window_s if settings.window_s is not None else _natural_period_s(inside)
    rows = kept if settings.repeat_to_s is None else _repeated(trace.name, kept, period, settings.repeat_to_s)
    cut = Trace(trace.name, tuple(rows))
    return cut, WindowReport(
        asked_s=settings.window_s,
        covered_s=inside[-1].arrival_s,
        rows_in_window=len(inside),
        rows_over_long=long,
        over_long=settings.over_long,
        max_input=settings.max_input,
        rows_repeated=max(0, len(rows) - len(kept)),
        period_s=period,
        rows=len(rows),
        rate_rps=mean_rate_rps(len(rows), cut.span_s),
    )


def _bounded(name: str, rows: list[TraceRow], settings: WindowSettings) -> list[TraceRow]:
    bound = settings.max_input
    long = [row for row in rows if row.input_tokens > bound]
    if long and settings.over_long == "fail":
        raise TraceError(
            f"{name}: {len(long)} rows of the window are over max_input = {bound} tokens "
            f"(the first at {long[0].arrival_s:.6g} s: {long[0].input_tokens}); drop or clip them, or raise max_input"
        )
    if settings.over_long == "clip":
        return [replace(row, input_tokens=min(row.input_tokens, bound)) for row in rows]
    kept = [row for row in rows if row.input_tokens <= bound]
    if not kept:
        raise TraceError(f"{name}: every row of the window is over max_input = {bound} tokens")
    return kept


def _natural_period_s(rows: list[TraceRow]) -> float:
    """The rows' reach plus one mean gap, so that the last row and the first repeated one do not collide."""
    span = rows[-1].arrival_s - rows[0].arrival_s
    return rows[-1].arrival_s + (span / (len(rows) - 1) if len(rows) > 1 else 0.0)


def _repeated(name: str, rows: list[TraceRow], period_s: float, to_s: float) -> list[TraceRow]:
    if not period_s > 0:
        raise TraceError(f"{name}: rows that all arrive at 0 s cannot be repeated without window_s")
    turns = to_s // period_s + 1
    if turns * len(rows) > MOST_REPEATED_ROWS:
        raise TraceError(
            f"{name}: its {len(rows)} rows, one period every {period_s:g} s, repeated to {to_s:g} s are over "
            f"{MOST_REPEATED_ROWS} requests; ask for a shorter time or a lower rate"
        )
    out: list[TraceRow] = []
    for turn in range(int(turns)):
        shifted = (replace(row, arrival_s=row.arrival_s + turn * period_s) for row in rows)
        out += [row for row in shifted if row.arrival_s < to_s]
    if not out:
        raise TraceError(f"{name}: repeat_to_s = {to_s:g} s ends before the first row")
    return out
