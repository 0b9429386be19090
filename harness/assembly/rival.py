"""A rival's server (vLLM, SGLang) as a system: its rules, and a point's settings as the server takes them."""

from typing import Literal

from baselines.servers.launch import LaunchSettings
from harness.assembly.effective import EffectiveTokens
from harness.assembly.reading import SettingsError
from harness.assembly.settings import PointSettings, SystemSettings

RIVALS = ("vllm", "sglang")
POLICIES = ("fcfs", "priority")
PRIORITY_FIELDS = {"vllm": "priority_low_first", "sglang": "priority_high_first"}
FOREIGN = (
    "batching", "granularity", "preempt", "batch_deadline", "predictor", "alpha", "token_bound", "tile_tokens",
    "launch_bound_us", "base_url", "served_model", "api_key_env", "without_url",
)  # fmt: skip
PLUGIN_SCHEDULER = "vllm_flowprefill.scheduler"
"""In `--scheduler-cls`: the plugin of integrations/vllm_flowprefill orders by deadline."""
RIVAL_ONLY = ("prefix_cache", "extra_flags")


def check_rival(system: SystemSettings) -> None:
    """Raise SettingsError for what vLLM and SGLang do not have."""
    for name in FOREIGN:
        if getattr(system, name) not in (None, ""):
            raise SettingsError(f"system.{name} means nothing to {system.backend}, which decides that itself")
    if system.policy not in POLICIES:
        raise SettingsError(f"system.policy of {system.backend} must be one of fcfs, priority, got {system.policy!r}")
    wanted = PRIORITY_FIELDS[system.backend] if system.policy == "priority" else "none"
    if reads_slos(system) and system.policy == "fcfs":
        wanted = "vllm_xargs"
    if system.slo_fields != wanted:
        raise SettingsError(
            f"system.policy={system.policy} of {system.backend} needs system.slo_fields={wanted}, "
            f"got {system.slo_fields}"
        )


def reads_slos(system: SystemSettings) -> bool:
    """Whether a rival is vLLM with our plugin, whose scheduler reads the SLO of each request."""
    return system.backend == "vllm" and any(PLUGIN_SCHEDULER in flag for flag in system.extra_flags or ())


def check_rival_only(system: SystemSettings) -> None:
    """Raise SettingsError for settings of a rival in any other system."""
    for name in RIVAL_ONLY:
        if getattr(system, name) is not None:
            raise SettingsError(f"system.{name} belongs to {' and '.join(RIVALS)}, not to system={system.name}")


def launch_settings(point: PointSettings, folder: str) -> LaunchSettings:
    """A point's settings in tokens as sent.

    folder: the model's, in Hugging Face format.
    """
    effective = EffectiveTokens.of(point)
    device: Literal["cpu", "cuda"] = "cuda" if point.device.kind == "cuda" else "cpu"
    policy: Literal["fcfs", "priority"] = "priority" if point.system.policy == "priority" else "fcfs"
    return LaunchSettings(
        model=folder,
        served_model=point.model.checkpoint,
        device=device,
        dtype=point.model.dtype,
        policy=policy,
        max_context_tokens=effective.max_context_tokens,
        kv_tokens=effective.kv_tokens,
        chunk_tokens=effective.chunk_tokens,
        prefix_cache=bool(point.system.prefix_cache),
        threads=point.device.threads,
        dummy_weights=point.model.dummy_weights,
        extra_flags=point.system.extra_flags or (),
    )
