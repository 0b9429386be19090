"""The experiment kind `reference`: max goodput by bisection, as a separately written simulation has it.

Lengths are replayed in the file's order at instants drawn by numpy's default_rng(seed).exponential(1 / rate).cumsum(),
so that anyone can write the same check down in a page; each series is a cell of the experiment file.
"""

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from engine.core.clock import seconds_to_ns
from engine.core.trace import TraceRow
from engine.simulation.clients import SimulatedRequest
from engine.simulation.run import simulate
from harness.assembly.reading import SettingsError, bounded, read
from harness.assembly.settings import PointSettings
from harness.assembly.simulated import run_settings, scheduler_of
from harness.assembly.simulated_device import device_model, predictor_timings
from harness.experiments.cells import Axes
from harness.experiments.compose import Job
from harness.experiments.output import OutputSettings, tell
from harness.experiments.prepare import Preparer
from harness.experiments.simulated_origin import simulation_origin
from harness.measurement.attainment import attainment
from harness.measurement.table_file import write_table, write_whole
from workloads.slo import SLORule

COLUMNS = ("series", "max_goodput_rps")
LOWEST_RPS, HIGHEST_RPS = 1e-3, 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSettings:
    """seeds: their mean attainment is held against `target`. tolerance: how near the two rates around it come."""

    seeds: tuple[int, ...]
    target: float = bounded(default=0.9, above=0, at_most=1)
    tolerance: float = bounded(default=0.01, above=0)


def run_reference(job: Job, axes: tuple[Axes, ...], output: OutputSettings) -> int:
    """Write tables/NAME.csv: a row per series. Raises SettingsError."""
    asked = read(CheckSettings, job.config.get("check"), "check")
    preparer = Preparer(tell, job.user)
    rows = []
    for one in axes:
        ready = preparer.prepare(job.compose(one))
        curve = _attainment_curve(ready.settings, ready.window.rows)
        rate = crossing_rate(
            lambda rps, curve=curve: statistics.fmean(curve(rps, seed) for seed in asked.seeds),  # type: ignore[misc]
            asked.target,
            asked.tolerance,
        )
        tell(f"{ready.labels['series']}: {rate:.4g} requests/s")
        rows.append({"series": ready.labels["series"], "max_goodput_rps": rate})
    experiment, results = job.config["experiment"], Path(output.results)
    origin = json.dumps(simulation_origin(job.overrides), indent=1, sort_keys=True) + "\n"
    write_whole(results / "raw" / experiment / "provenance.json", origin.encode())
    path = results / "tables" / f"{experiment}.csv"
    write_table(path, rows, COLUMNS)
    tell(f"wrote {path}")
    return 0


def crossing_rate(attained: Callable[[float], float], target: float, tolerance: float) -> float:
    """The rate at which `attained` falls below the target: bisection to the tolerance between the two rates around it.

    Raises SettingsError where no rate, or every one, meets the target.
    """
    low = high = 1.0
    while attained(low) < target:
        low, high = low / 2, low
        if low < LOWEST_RPS:
            raise SettingsError(f"check.target={target:g} is not met even at {low:g} requests/s")
    while high <= low or attained(high) >= target:
        low, high = max(low, high), 2 * max(low, high)
        if high > HIGHEST_RPS:
            raise SettingsError(f"check.target={target:g} is met even at {low:g} requests/s")
    while high > low * (1 + tolerance):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if attained(middle) >= target else (low, middle)
    return float((low * high) ** 0.5)


def _attainment_curve(point: PointSettings, rows: Sequence[TraceRow]) -> Callable[[float, int], float]:
    device, settings = device_model(point), run_settings(point)
    timings = predictor_timings(point, device)
    rule = SLORule(point.slo, point.slo_scale)
    objectives = [rule.objective(row) for row in rows]

    def attained(rate_rps: float, seed: int) -> float:
        due_s = np.random.default_rng(seed).exponential(1 / rate_rps, len(rows)).cumsum().tolist()
        requests = [
            SimulatedRequest(f"r{i}", seconds_to_ns(at_s), row.input_tokens, 1, one.slo, one.task)
            for i, (at_s, row, one) in enumerate(zip(due_s, rows, objectives, strict=True))
        ]
        result = simulate(requests, scheduler_of(point, timings), device, settings)
        return attainment(result.records).overall.share or 0.0

    return attained
