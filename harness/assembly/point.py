"""A composed configuration to the settings of one point, and the rules that join its groups."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.scheduling.routing.catalogue import ROUTERS
from engine.serving.catalogue import BATCHINGS, POLICIES, PREDICTORS
from harness.assembly.reading import SettingsError, read
from harness.assembly.rival import RIVALS, check_rival, check_rival_only
from harness.assembly.settings import (
    LARGEST_FACTOR,
    DeviceSettings,
    LoadSettings,
    ModelSettings,
    PointSettings,
    ProtocolSettings,
    SystemSettings,
)
from harness.assembly.simulated_memory import with_kv_pool
from workloads.fetch import OUT, read_sources
from workloads.settings import WorkloadSettings
from workloads.slo import SLOSettings

GROUPS = ("system", "model", "device", "workload", "slo", "load", "protocol")
BATCHING_OPTIONS = {
    "alpha": ("slo_aware",),
    "token_bound": ("slo_aware", "token_limited"),
    "chunk_tokens": ("chunked", "vllm_like", "sglang_like"),
}
ENGINE_ONLY = ("policy", "batching", "granularity", "preempt", "batch_deadline", "predictor")
PROXY_ONLY = ("prefill_instances", "decode_instances", "routing")
DECODE_ONLY = ("decode_order", "decode_reserve")
OURS_ONLY = ("tile_tokens", "launch_bound_us", *PROXY_ONLY, *DECODE_ONLY)
SERVER_ONLY = ("base_url", "served_model", "api_key_env")


def read_point(config: Mapping[str, Any]) -> PointSettings:
    """The settings of one point. Raises SettingsError with one sentence for any mistake.

    config: the groups of GROUPS and `experiment`; other root keys are the caller's business.
    """
    for group in GROUPS:
        if group not in config:
            raise SettingsError(f"the settings group {group} is missing")
    slo = dict(config["slo"])
    scale = slo.pop("scale", None)
    if isinstance(scale, bool) or not isinstance(scale, int | float) or not scale > 0:
        raise SettingsError(f"slo.scale must be a number above 0, got {scale!r}")
    if not 1 / LARGEST_FACTOR <= scale <= LARGEST_FACTOR:
        raise SettingsError(f"slo.scale must be between {1 / LARGEST_FACTOR:g} and {LARGEST_FACTOR:g}, got {scale:g}")
    model = dict(config["model"])
    from_memory = model.get("kv_tokens", 1) is None
    point = PointSettings(
        experiment=str(config["experiment"]),
        system=read(SystemSettings, config["system"], "system"),
        model=read(ModelSettings, {**model, "kv_tokens": 1} if from_memory else model, "model"),
        device=read(DeviceSettings, config["device"], "device"),
        workload=read(WorkloadSettings, config["workload"], "workload"),
        slo=read(SLOSettings, slo, "slo"),
        slo_scale=float(scale),
        load=read(LoadSettings, config["load"], "load"),
        protocol=read(ProtocolSettings, config["protocol"], "protocol"),
    )
    check_system(point.system)
    _check_joins(point)
    return with_kv_pool(point) if from_memory else point


def check_system(system: SystemSettings) -> None:
    """Raise SettingsError where a system's settings contradict each other or name what does not exist."""
    if system.backend in RIVALS:
        check_rival(system)
        return
    engine = system.backend == "engine"
    for name in ENGINE_ONLY if engine else SERVER_ONLY[:1]:
        if getattr(system, name) in (None, "") and system.without_url is None:
            raise SettingsError(f"system={system.name} needs system.{name}")
    for name in SERVER_ONLY if engine else (*ENGINE_ONLY, *BATCHING_OPTIONS, *OURS_ONLY):
        if getattr(system, name) not in (None, ""):
            where = "a server that runs already (system=external)" if engine else "an engine started here"
            raise SettingsError(f"system.{name} belongs to {where}, not to system={system.name}")
    check_rival_only(system)
    url = system.base_url or ""
    if "@" in url.partition("://")[2].partition("/")[0] or "?" in url:
        raise SettingsError(
            "system.base_url holds a name or a password, or a query, which would be kept with every result: name the"
            " environment variable that holds the key in system.api_key_env"
        )
    if not engine:
        return
    for name, table in (("policy", POLICIES), ("batching", BATCHINGS), ("predictor", PREDICTORS)):
        if getattr(system, name) not in table:
            raise SettingsError(f"system.{name} must be one of {', '.join(table)}, got {getattr(system, name)!r}")
    _check_instances(system)
    for name, owners in BATCHING_OPTIONS.items():
        given = getattr(system, name) is not None
        if system.batching in owners and not given:
            raise SettingsError(f"system.batching={system.batching} needs system.{name}")
    if system.batching == "chunked" and system.alpha is not None:
        raise SettingsError("system.alpha belongs to system.batching=slo_aware; it conflicts with chunked")
    if system.preempt == "never" and system.granularity != "none":
        raise SettingsError(f"system.preempt=never conflicts with system.granularity={system.granularity}: use none")
    if (system.granularity == "tile") != (system.tile_tokens is not None):
        state = "needs" if system.granularity == "tile" else "conflicts with"
        raise SettingsError(f"system.granularity={system.granularity} {state} system.tile_tokens")


def _check_instances(system: SystemSettings) -> None:
    if (system.prefill_instances is None) != (system.decode_instances is None):
        raise SettingsError("system.prefill_instances and system.decode_instances go together: both, or neither")
    if system.prefill_instances is None and system.routing is not None:
        raise SettingsError("system.routing needs system.prefill_instances and system.decode_instances")
    if system.routing is not None and system.routing not in ROUTERS:
        raise SettingsError(f"system.routing must be one of {', '.join(ROUTERS)}, got {system.routing!r}")


def _check_ranks(point: PointSettings) -> None:
    """A measured split model is one engine of ours."""
    system, ranks = point.system, point.model.tensor_parallel
    if system.backend != "engine":
        raise SettingsError(
            f"model.tensor_parallel={ranks} splits our own engine, and conflicts with system={system.name}"
        )
    if system.prefill_instances is not None:
        raise SettingsError(
            f"model.tensor_parallel={ranks} conflicts with system={system.name}: KV is handed over by one rank only"
        )


def settings_mapping(point: PointSettings) -> dict[str, Any]:
    """The settings as plain nested mappings, for files and fingerprints."""
    return dataclasses.asdict(point)


def _check_joins(point: PointSettings) -> None:
    if point.device.simulated and point.system.backend != "engine":
        raise SettingsError(f"device={point.device.name} is simulated; it conflicts with system={point.system.name}")
    simulation = point.device.simulation
    if simulation is not None and point.system.prefill_instances is not None:
        if simulation.kv_link_bytes_per_s is None:
            raise SettingsError(
                f"system={point.system.name} hands KV over: on a simulated device it needs"
                " device.simulation.kv_link_bytes_per_s"
            )
        if simulation.rounds != "event" or simulation.serial_rounds:
            raise SettingsError(
                f"system={point.system.name} has several instances: it needs device.simulation.rounds=event, not serial"
            )
    if (point.model.tensor_parallel or 1) > 1 and not point.device.simulated:
        _check_ranks(point)
    if point.system.launch_bound_us is not None and point.device.kind != "cuda":
        raise SettingsError(f"system.launch_bound_us is of a CUDA device; it conflicts with device={point.device.name}")
    if point.device.kind == "cpu" and point.model.dtype == "float16":
        raise SettingsError("model.dtype=float16 conflicts with device.kind=cpu: use float32")
    if point.workload.max_input >= point.model.max_context_tokens:
        raise SettingsError(
            f"workload.max_input ({point.workload.max_input}) must be below model.max_context_tokens "
            f"({point.model.max_context_tokens}): a prompt and its output have to fit"
        )
    if point.protocol.min_arrivals_s is not None and point.workload.repeat_to_s is not None:
        raise SettingsError("workload.repeat_to_s conflicts with protocol.min_arrivals_s, which sets it")
    _check_discard(point.protocol)
    path = point.workload.path
    if path is not None and not Path(path).is_file():
        raise SettingsError(f"workload.path: there is no file {path}{_how_to_have(Path(path))}")


def _check_discard(protocol: ProtocolSettings) -> None:
    discard_s, arrivals_s = protocol.discard_first_s, protocol.min_arrivals_s
    if discard_s is not None and (arrivals_s is None or discard_s >= arrivals_s):
        raise SettingsError(
            f"protocol.discard_first_s={discard_s:g} must be below protocol.min_arrivals_s"
            f" ({'not set' if arrivals_s is None else f'{arrivals_s:g}'}): nothing would be counted"
        )


def _how_to_have(path: Path) -> str:
    public = path.parent == OUT and path.name in {source.file for source in read_sources().values()}
    return "; make traces fetches it" if public else ""
