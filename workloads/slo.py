"""The only place where SLOs are made: by class, by length, one for all; scaled, stretched to a device's speed."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from engine.core.clock import seconds_to_ns
from engine.core.slo import SLO
from engine.core.trace import TraceRow
from workloads.length_scale import effective_tokens

A800_PREFILL_S: tuple[tuple[int, float], ...] = (
    (128, 0.024),
    (546, 0.055),
    (1132, 0.082),
    (2315, 0.166),
    (4174, 0.292),
    (16746, 1.75),
)
"""Unloaded prefill seconds by prompt tokens: Llama-3.1-8B, one A800, TP1 (lower envelope of the released log)."""


@dataclass(frozen=True, slots=True)
class Target:
    """Objectives in seconds at slo_scale 1 on the paper's device; None = none stated."""

    ttft_s: float | None
    tbt_s: float | None = None


@dataclass(frozen=True, slots=True)
class LengthBin:
    """Rows of up to `up_to_tokens` input tokens (trace tokens; None = any length) get this class and these SLOs."""

    up_to_tokens: int | None
    task: str
    ttft_s: float | None
    tbt_s: float | None = None


@dataclass(frozen=True, slots=True)
class SLOSettings:
    """Which SLO a row gets (conf/slo/*.yaml).

    rule: by_task (the row's class, looked up in `tasks`), by_length (the first of `bins` that holds the row's input;
    the bin also names the class), uniform (`uniform` for all; the class stays the row's own).
    """

    rule: Literal["by_task", "by_length", "uniform"]
    tasks: Mapping[str, Target] = field(default_factory=dict)
    bins: tuple[LengthBin, ...] = ()
    uniform: Target | None = None

    def __post_init__(self) -> None:
        given = {"by_task": bool(self.tasks), "by_length": bool(self.bins), "uniform": self.uniform is not None}
        names = {"by_task": "tasks", "by_length": "bins", "uniform": "uniform"}
        for rule, is_given in given.items():
            if is_given != (rule == self.rule):
                state = "is missing" if rule == self.rule else "is given too"
                raise ValueError(f"slo rule={self.rule} goes with {names[self.rule]}; {names[rule]} {state}")
        bounds = [length_bin.up_to_tokens for length_bin in self.bins]
        if self.bins and (bounds[-1] is not None or None in bounds[:-1]):
            raise ValueError("the last of the slo bins, and only the last, must have up_to_tokens null")
        finite = [bound for bound in bounds if bound is not None]
        if finite != sorted(set(finite)):
            raise ValueError(f"the slo bins' up_to_tokens must grow, got {finite}")


@dataclass(frozen=True, slots=True)
class Objective:
    """What one request is judged by: its class and its SLO."""

    task: str
    slo: SLO


@dataclass(frozen=True, slots=True)
class SLORule:
    """Rows to objectives. Both objectives scale by slo_scale (the paper's axis) x slo_speed_factor (the device's).

    Every slo_scale is a run of its own: the scheduler sees the scaled SLO.
    """

    settings: SLOSettings
    slo_scale: float = 1.0
    slo_speed_factor: float = 1.0

    def __post_init__(self) -> None:
        for name in ("slo_scale", "slo_speed_factor"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, got {getattr(self, name)}")

    def require_all(self, rows: Iterable[TraceRow]) -> None:
        """Raise ValueError for a class without an SLO: told before anything is measured."""
        for row in {row.task: row for row in rows}.values():
            self._target(row)

    def objective(self, row: TraceRow) -> Objective:
        """The row's class and SLO. Raises ValueError for a class without an SLO."""
        task, target = self._target(row)
        return Objective(task, SLO(self._scaled_ns(target.ttft_s), self._scaled_ns(target.tbt_s)))

    def _target(self, row: TraceRow) -> tuple[str, Target]:
        if self.settings.rule == "by_task":
            target = self.settings.tasks.get(row.task)
            if target is None:
                raise ValueError(_no_slo(row.task, self.settings.tasks))
            return row.task, target
        if self.settings.rule == "by_length":
            for length_bin in self.settings.bins:
                if length_bin.up_to_tokens is None or row.input_tokens <= length_bin.up_to_tokens:
                    return length_bin.task, Target(length_bin.ttft_s, length_bin.tbt_s)
        assert self.settings.uniform is not None
        return row.task, self.settings.uniform

    def _scaled_ns(self, seconds: float | None) -> int | None:
        return None if seconds is None else seconds_to_ns(seconds * self.slo_scale * self.slo_speed_factor)


def _no_slo(task: str, known: Mapping[str, Target]) -> str:
    if not task:
        return "the trace has no classes, so slo=by_task has no SLO for its rows; use slo=by_length or slo=uniform"
    return f"no SLO for class {task!r}: slo.tasks names {', '.join(known)}; add it, or use slo=by_length or slo=uniform"


def a800_prefill_s(tokens: int) -> float:
    """Published unloaded prefill time of a prompt. Straight lines between the six points; below the first point its
    value (tiny prompts hit a floor), above the last the last slope."""
    points = A800_PREFILL_S
    if tokens <= points[0][0]:
        return points[0][1]
    right = min(bisect_left([length for length, _ in points], tokens), len(points) - 1)
    (x0, y0), (x1, y1) = points[right - 1], points[right]
    return y0 + (y1 - y0) * (tokens - x0) / (x1 - x0)


def slo_speed_factor(lengths: Sequence[int], seconds_of: Callable[[int], float], length_scale: float = 1.0) -> float:
    """Total unloaded prefill time of a trace here, over the same on the published curve.

    lengths: input tokens of the rows replayed, in trace tokens. seconds_of: prefill seconds here of a prompt of that
    many effective tokens (trace tokens x length_scale). Raises ValueError without rows or without a positive time.
    """
    if not lengths:
        raise ValueError("slo_speed_factor needs at least one request")
    here_s = sum(seconds_of(effective_tokens(tokens, length_scale)) for tokens in lengths)
    there_s = sum(a800_prefill_s(tokens) for tokens in lengths)
    if not here_s > 0:
        raise ValueError(f"slo_speed_factor needs prefill times above 0; they add up to {here_s} s")
    return here_s / there_s
