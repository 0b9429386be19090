"""One point, simulated: requests, scheduler and device made from its settings, a row of the point table out of it."""

import functools
import traceback
from collections.abc import Sequence

from engine.core.clock import NS_PER_S
from engine.core.record import ClientReport
from engine.scheduling.predictors.sampled_curve import RangeError
from engine.serving.timings import Timings
from engine.simulation.device import DeviceModel
from engine.simulation.run import SimulationResult
from harness.assembly.predicted_blocking import predicted_blocking_ms
from harness.assembly.reading import SettingsError
from harness.assembly.settings import PointSettings
from harness.assembly.simulated import run_settings, scheduled
from harness.assembly.simulated_device import device_model, predictor_timings
from harness.assembly.simulated_run import simulate_requests
from harness.experiments.job_runner import Failure
from harness.experiments.measure import recorded_settings
from harness.experiments.prepare import Prepared
from harness.experiments.simulated_store import SimulatedPoint, rounded
from harness.measurement.tables import point_row
from harness.measurement.verdict import judge

CLIENT_COLUMNS = ("sender_lag_p99_ms", "client_cpu_share", "prompt_tokens_mismatched")
"""What a simulated client has not: it is never late, takes nothing, and is told no lengths."""


def simulate_or_fail(ready: Prepared) -> SimulatedPoint | Failure:
    """For processes of their own: whatever goes wrong costs this point only."""
    try:
        return _simulator().simulate(ready)
    except (SettingsError, RangeError) as error:
        return Failure(str(error))
    except Exception as error:  # noqa: BLE001 - a fault must cost one point, not the others; it is told in full
        return Failure(f"{type(error).__name__}: {error}", traceback.format_exc())


class Simulator:
    """Simulates points; those of one system, model and device share a device model and the predictor's samples."""

    def __init__(self) -> None:
        self._worlds: dict[str, tuple[DeviceModel, Timings]] = {}

    def simulate(self, ready: Prepared) -> SimulatedPoint:
        """Raises SettingsError."""
        point = ready.settings
        planned = scheduled(point, ready.window, ready.given.slo_speed_factor)
        device, timings = self._world(point)
        result = simulate_requests(point, planned, device, timings)
        client = client_report([one.due_ns for one in planned], result)
        facts, verdict = ready.facts(client.asked_rps), judge(result.records, client)
        row = point_row(facts, result.records, result.report, client, verdict, discard_first_s=ready.discard_first_s)
        row.update(dict.fromkeys(CLIENT_COLUMNS))
        if point.system.preempt == "pause":
            lengths = [one.prompt_tokens for one in planned]
            row["blocking_predicted_mean_ms"] = predicted_blocking_ms(device, lengths, run_settings(point))
        return SimulatedPoint(rounded(row), recorded_settings(ready))

    def _world(self, point: PointSettings) -> tuple[DeviceModel, Timings]:
        key = repr((point.system, point.model, point.device))
        if key not in self._worlds:
            device = device_model(point)
            self._worlds[key] = device, predictor_timings(point, device)
        return self._worlds[key]


def client_report(due_ns: Sequence[int], result: SimulationResult) -> ClientReport:
    """Of a client that is never late."""
    span_ns = due_ns[-1] - due_ns[0] if due_ns else 0
    rate = len(due_ns) / (span_ns / NS_PER_S) if span_ns > 0 else 0.0
    return ClientReport(len(due_ns), len(due_ns), result.ended_at_ns, rate, rate)


@functools.cache
def _simulator() -> Simulator:
    """One for each process."""
    return Simulator()
