"""One simulated run of a point: on one engine, or on prefill and decode instances behind a proxy."""

from collections.abc import Sequence

from engine.core.batch import Work
from engine.core.clock import seconds_to_ns
from engine.scheduling.predictors.guarded import GuardedPredictor
from engine.scheduling.predictors.polynomial import fit
from engine.scheduling.routing.catalogue import ROUTERS
from engine.serving.timings import Timings
from engine.simulation.device import DeviceModel
from engine.simulation.disaggregated import simulate_disaggregated
from engine.simulation.run import SimulationResult, simulate
from engine.simulation.simulated_transport import SimulatedTransport
from harness.assembly.effective import proxy_settings
from harness.assembly.reading import SettingsError
from harness.assembly.settings import PointSettings
from harness.assembly.simulated import (
    ELEMENT_BYTES,
    run_settings,
    scheduler_of,
    shape_of,
    simulated_requests,
    simulation_of,
)
from workloads.plan import ScheduledRequest


def simulate_requests(
    point: PointSettings, planned: Sequence[ScheduledRequest], device: DeviceModel, timings: Timings
) -> SimulationResult:
    """What comes of a point's requests. timings: what predictors are fitted to. Raises SettingsError."""
    requests, settings = simulated_requests(planned), run_settings(point)
    give_up = point.protocol.give_up_slo_multiple
    drain_ns = None if point.load.drain_s is None else seconds_to_ns(point.load.drain_s)
    instances = proxy_settings(point)
    if instances is None:
        return simulate(
            requests,
            scheduler_of(point, timings),
            device,
            settings,
            give_up_slo_multiple=give_up,
            drain_ns=drain_ns,
        )
    predictor = GuardedPredictor(fit(timings.prefills))
    return simulate_disaggregated(
        requests,
        [scheduler_of(point, timings) for _ in range(instances.prefill_instances)],
        [scheduler_of(point, timings) for _ in range(instances.decode_instances)],
        device,
        settings,
        transport_of(point),
        ROUTERS[instances.routing](),
        lambda tokens: predictor.estimate_ns(Work(((tokens, 0),))),
        point.model.block_tokens,
        give_up_slo_multiple=give_up,
        drain_ns=drain_ns,
    )


def transport_of(point: PointSettings) -> SimulatedTransport:
    """The transport between the point's instances. Raises SettingsError where the device has none."""
    simulation, shape = simulation_of(point), shape_of(point)
    if simulation.kv_link_bytes_per_s is None:
        raise SettingsError(f"system={point.system.name} hands KV over: it needs device.simulation.kv_link_bytes_per_s")
    token_bytes = 2 * shape.kv_heads * shape.head_dim * shape.layers * ELEMENT_BYTES[point.model.dtype]
    return SimulatedTransport(simulation.kv_link_bytes_per_s, simulation.kv_link_delay_s, token_bytes)
