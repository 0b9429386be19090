"""From a point's settings to what a simulation is made of: requests, scheduler, device model, disturbances."""

from collections.abc import Sequence

from engine.core.trace import Trace
from engine.model.activation import activation_bytes
from engine.model.catalogue import load_shape
from engine.model.shape import ModelLoadError, ModelShape
from engine.scheduling.scheduler import Scheduler
from engine.serving.scheduler_recipe import SchedulerRecipe
from engine.serving.settings import SettingsError as EngineSettingsError
from engine.serving.timings import Timings
from engine.simulation.run import SimulatedRequest
from engine.simulation.settings import SimulationSettings
from harness.assembly.effective import engine_settings
from harness.assembly.predictor_error import scheduler_with_error
from harness.assembly.reading import SettingsError
from harness.assembly.settings import PointSettings
from harness.assembly.simulation_settings import SimulatedDeviceSettings
from workloads.length_scale import effective_tokens
from workloads.plan import ScheduledRequest, schedule_requests
from workloads.slo import SLORule

ELEMENT_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
SEED_STEP = 1_000_003
"""Keeps the draws of neighbouring seeds apart: the noise of load.seed s under noise_seed k is number k x step + s."""


def simulation_of(point: PointSettings) -> SimulatedDeviceSettings:
    """The point's simulated device. Raises SettingsError where it has none."""
    if point.device.simulation is None:
        raise SettingsError(f"device={point.device.name} is not simulated: use a device with kind simulated")
    return point.device.simulation


def shape_of(point: PointSettings) -> ModelShape:
    """The model's shape. Raises SettingsError."""
    try:
        return load_shape(point.model.checkpoint)
    except ModelLoadError as error:
        raise SettingsError(f"model.checkpoint: {error}") from error


def run_settings(point: PointSettings) -> SimulationSettings:
    """Delays, rounds and noise; each load.seed draws a noise of its own."""
    given = simulation_of(point)
    return SimulationSettings(
        signal_delay_s=given.signal_delay_s,
        launch_ahead_s=given.launch_ahead_s,
        switch_s=given.switch_s,
        round_s=given.round_s,
        rounds=given.rounds,
        poll_s=given.poll_s,
        serial_rounds=given.serial_rounds,
        arrival_delay_s=given.arrival_delay_s,
        noise_cv=given.noise_cv,
        noise_seed=given.noise_seed * SEED_STEP + point.load.seed,
    )


def scheduler_of(point: PointSettings, timings: Timings) -> Scheduler:
    """The scheduler an engine of these settings would run, its predictor fitted to `timings`. Raises SettingsError."""
    shape, given = shape_of(point), simulation_of(point)
    settings = engine_settings(point, profile="", engine_cpu=None)
    most_tokens = min(settings.max_context_tokens, shape.max_positions, settings.kv_blocks * settings.block_tokens)
    recipe = SchedulerRecipe(settings, most_tokens, point.model.dtype, timings)
    kind = scheduler_with_error(given.predictor_error_cv, given.predictor_error_seed * SEED_STEP + point.load.seed)
    element_bytes = ELEMENT_BYTES[point.model.dtype]
    try:
        return recipe.build(kind, lambda task: activation_bytes(shape, task, element_bytes))
    except EngineSettingsError as error:
        raise SettingsError(f"system={point.system.name}: {error}") from error


def scheduled(point: PointSettings, window: Trace, factor: float) -> tuple[ScheduledRequest, ...]:
    """The point's requests, as a measured point would send them, without prompts. Raises SettingsError."""
    model = point.model
    try:
        return schedule_requests(
            window,
            point.workload.plan_settings(point.load.rate_scale, factor, model.length_scale),
            SLORule(point.slo, point.slo_scale, factor),
            point.load.seed,
            effective_tokens(model.max_context_tokens, model.length_scale),
        )
    except ValueError as error:
        raise SettingsError(str(error)) from error


def simulated_requests(planned: Sequence[ScheduledRequest]) -> tuple[SimulatedRequest, ...]:
    """In the simulator's terms."""
    return tuple(
        SimulatedRequest(
            request_id=one.request_id,
            due_ns=one.due_ns,
            prompt_tokens=one.prompt_tokens,
            max_tokens=one.max_tokens,
            slo=one.objective.slo,
            task=one.objective.task,
        )
        for one in planned
    )
