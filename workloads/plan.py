"""A trace window to the requests of one run: due instants, prompts, outputs, SLOs; all before the clock starts."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from engine.core.clock import seconds_to_ns
from engine.core.trace import PlannedRequest, Trace, TraceRow
from workloads.arrivals import generated_arrivals_s
from workloads.length_scale import effective_tokens
from workloads.prompts import PromptSettings, drawn_prompts
from workloads.slo import Objective, SLORule

Arrivals = Literal["recorded", "poisson", "gamma"]
Lengths = Literal["resampled"]


@dataclass(frozen=True, slots=True)
class PlanSettings:
    """How the rows of a window become requests. Token counts are trace tokens.

    arrivals: recorded (the trace's own instants), or drawn by the run's seed over the same span: poisson, gamma.
    arrival_cv: coefficient of variation of gamma gaps; given with gamma, and only then.
    rate_scale: arrivals per second over the trace's own; gaps shrink by it. 1 = the trace's own rate.
    time_stretch: gaps grow by it (a slower device: slo_speed_factor, see workloads.slo).
    length_scale: lengths shrink by it, rounded up, at least 1: inputs and outputs alike.
    output_tokens: tokens asked of every request, or "trace".
    lengths: None (the row's own), or resampled: drawn by the run's seed, with replacement, among the rows of its class.
    """

    arrivals: Arrivals = "recorded"
    arrival_cv: float | None = None
    rate_scale: float = 1.0
    time_stretch: float = 1.0
    length_scale: float = 1.0
    output_tokens: int | Literal["trace"] = 1
    lengths: Lengths | None = None

    def __post_init__(self) -> None:
        for name in ("rate_scale", "time_stretch", "length_scale"):
            value = getattr(self, name)
            if not (value > 0 and math.isfinite(value)):
                raise ValueError(f"{name} must be a number above 0, got {value}")
        if self.arrivals == "gamma" and self.arrival_cv is None:
            raise ValueError("arrivals=gamma needs arrival_cv, the coefficient of variation of its gaps")
        if self.arrivals != "gamma" and self.arrival_cv is not None:
            raise ValueError(f"arrival_cv belongs to arrivals=gamma; it conflicts with arrivals={self.arrivals}")
        if self.arrival_cv is not None and not 0 < self.arrival_cv <= 100:
            raise ValueError(f"arrival_cv must be above 0 and at most 100, got {self.arrival_cv}")
        if self.output_tokens != "trace" and self.output_tokens < 1:
            raise ValueError(f"output_tokens must be at least 1, got {self.output_tokens}")


@dataclass(frozen=True, slots=True)
class ScheduledRequest:
    """A planned request without its prompt: all that a simulation needs. prompt_tokens, max_tokens: effective."""

    request_id: str
    due_ns: int
    prompt_tokens: int
    max_tokens: int
    objective: Objective


def plan_requests(
    window: Trace,
    settings: PlanSettings,
    slos: SLORule,
    prompts: PromptSettings,
    seed: int,
    context_limit_tokens: int | None = None,
) -> tuple[PlannedRequest, ...]:
    """The requests of one run, in order of due instants.

    The seed draws the prompts, with arrivals poisson or gamma the instants, and with lengths resampled the lengths;
    rows keep their order and classes under every seed. Effective lengths are len(token_ids) and max_tokens.
    context_limit_tokens: positions the model has; a request that needs more is refused here, not deep in the run.
    Raises ValueError with one sentence.
    """
    scheduled = schedule_requests(window, settings, slos, seed, context_limit_tokens)
    token_ids = drawn_prompts([one.prompt_tokens for one in scheduled], prompts, seed)
    return tuple(
        PlannedRequest(one.request_id, one.due_ns, ids, one.max_tokens, one.objective.slo, one.objective.task)
        for one, ids in zip(scheduled, token_ids, strict=True)
    )


def schedule_requests(
    window: Trace, settings: PlanSettings, slos: SLORule, seed: int, context_limit_tokens: int | None = None
) -> tuple[ScheduledRequest, ...]:
    """The same requests without prompts."""
    rows = window.rows if settings.lengths is None else resampled_lengths(window.rows, seed)
    lengths = [effective_tokens(row.input_tokens, settings.length_scale) for row in rows]
    asked = [row.output_tokens if settings.output_tokens == "trace" else settings.output_tokens for row in rows]
    outputs = [effective_tokens(tokens, settings.length_scale) for tokens in asked]
    if context_limit_tokens is not None:
        _refuse_over_context(lengths, outputs, context_limit_tokens, settings.length_scale)
    objectives = [slos.objective(row) for row in rows]
    stretch = settings.time_stretch / settings.rate_scale
    due = [seconds_to_ns(instant * stretch) for instant in _arrivals_s(window, settings, seed)]
    width = max(4, len(str(len(lengths))))
    return tuple(
        ScheduledRequest(f"r{i:0{width}d}", due[i], lengths[i], outputs[i], objectives[i]) for i in range(len(lengths))
    )


def resampled_lengths(rows: Sequence[TraceRow], seed: int) -> tuple[TraceRow, ...]:
    """The rows, each with the lengths of one drawn with replacement among those of its class.

    Input and output of a row stay together. The same lengths at every rate, so that a seed's curve is of one workload.
    A trace without classes is one class.
    """
    by_task: dict[str, list[TraceRow]] = {}
    for row in rows:
        by_task.setdefault(row.task, []).append(row)
    rng = random.Random(f"plan lengths {seed}")
    drawn = []
    for row in rows:
        mates = by_task[row.task]
        # random() alone is the stream that no Python version changes; choice() is not.
        source = mates[int(rng.random() * len(mates))]
        drawn.append(replace(row, input_tokens=source.input_tokens, output_tokens=source.output_tokens))
    return tuple(drawn)


def _arrivals_s(window: Trace, settings: PlanSettings, seed: int) -> list[float]:
    if settings.arrivals == "recorded":
        return [row.arrival_s for row in window.rows]
    rng = random.Random(f"plan arrivals {seed}")
    first_s, cv = window.rows[0].arrival_s, settings.arrival_cv or 1.0
    return [first_s + gap for gap in generated_arrivals_s(len(window.rows), window.span_s, cv, rng)]


def _refuse_over_context(lengths: Sequence[int], outputs: Sequence[int], limit: int, length_scale: float) -> None:
    needs = [prompt + output for prompt, output in zip(lengths, outputs, strict=True)]
    over = [i for i, need in enumerate(needs) if need > limit]
    if over:
        longest = max(over, key=lambda i: needs[i])
        raise ValueError(
            f"{len(over)} requests need more than the model's {limit} positions (the longest: {lengths[longest]} "
            f"prompt and {outputs[longest]} output tokens at length_scale {length_scale:g}); "
            "lower max_input or output_tokens"
        )
