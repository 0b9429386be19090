"""The requests of a point, decided before its clock starts: trace, window, lengths, instants, prompts, SLOs."""

import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.core.trace import PlannedRequest, Trace
from harness.assembly.reading import SettingsError
from harness.assembly.settings import PointSettings
from workloads.length_scale import effective_tokens
from workloads.plan import plan_requests
from workloads.prompts import PromptSettings
from workloads.settings import WorkloadSettings
from workloads.slo import SLORule, slo_speed_factor
from workloads.traces.catalogue import load_trace
from workloads.window import cut_window


@dataclass(frozen=True, slots=True)
class LoadedTrace:
    """A trace as read. digest: of its rows, whatever file they came from. account: the admission report's text."""

    trace: Trace
    digest: str
    account: str


def read_trace(settings: WorkloadSettings) -> LoadedTrace:
    """Read and admit a trace. Raises SettingsError."""
    try:
        trace, report = load_trace(settings)
    except ValueError as error:
        raise SettingsError(str(error)) from error
    digest = hashlib.sha256()
    for row in trace.rows:
        digest.update(f"{row.arrival_s!r},{row.input_tokens},{row.output_tokens},{row.task}\n".encode())
    return LoadedTrace(trace, digest.hexdigest(), report.text())


def window_of(point: PointSettings, loaded: LoadedTrace) -> tuple[Trace, str]:
    """The rows a point replays, and the cut's account. Raises SettingsError; a class without an SLO is one, too."""
    settings = point.workload.window_settings()
    if point.protocol.min_arrivals_s is not None:
        settings = dataclasses.replace(settings, repeat_to_s=point.protocol.min_arrivals_s * point.load.rate_scale)
    try:
        window, report = cut_window(loaded.trace, settings)
        SLORule(point.slo).require_all(window.rows)
    except ValueError as error:
        raise SettingsError(str(error)) from error
    return window, report.text()


def speed_factor(point: PointSettings, loaded: LoadedTrace, seconds_of: Callable[[int], float]) -> float:
    """Total prefill time of the window here, over the same on the published curve (see workloads.slo).

    seconds_of: prefill seconds here of a prompt of so many tokens as sent. The window once, without repetition, so
    that every rate of a workload has one factor.
    """
    window, _ = cut_window(loaded.trace, dataclasses.replace(point.workload.window_settings(), repeat_to_s=None))
    return slo_speed_factor([row.input_tokens for row in window.rows], seconds_of, point.model.length_scale)


def plan_point(point: PointSettings, window: Trace, factor: float) -> tuple[PlannedRequest, ...]:
    """The requests to send. Raises SettingsError (no SLO for a class, a prompt too long for the model)."""
    # Every system gets the same prompts at one rate and seed; another rate gets others, so that on a server kept
    # running nothing can be found in a prefix cache.
    content = f"{point.workload.name} {point.load.rate_scale!r} {point.slo_scale!r}"
    limit = effective_tokens(point.model.max_context_tokens, point.model.length_scale)
    try:
        return plan_requests(
            window,
            point.workload.plan_settings(point.load.rate_scale, factor, point.model.length_scale),
            SLORule(point.slo, point.slo_scale, factor),
            PromptSettings(point.model.vocab_tokens, content=content),
            point.load.seed,
            limit,
        )
    except ValueError as error:
        raise SettingsError(str(error)) from error


def asked_rps(requests: Sequence[PlannedRequest]) -> float:
    """Mean rate of the schedule: requests over the span of their due instants; 0 for fewer than two."""
    if len(requests) < 2:
        return 0.0
    span_ns = requests[-1].due_ns - requests[0].due_ns
    return len(requests) / (span_ns / 1e9) if span_ns > 0 else 0.0
