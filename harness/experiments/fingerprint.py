"""The identity of a point: its resolved settings and its input, nothing of the code or of the day."""

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any

from harness.assembly.point import settings_mapping
from harness.assembly.settings import PointSettings

HASH_DIGITS = 12
ADDED_LATER = (
    ("device", "simulation"),
    ("model", "tensor_parallel"),
    ("workload", "lengths"),
    ("system", "prefix_cache"),
    ("system", "extra_flags"),
    ("system", "launch_bound_us"),
    ("system", "decode_order"),
    ("system", "decode_reserve"),
    ("system", "prefill_instances"),
    ("system", "decode_instances"),
    ("system", "routing"),
    ("protocol", "discard_first_s"),
)
"""Settings that older points do not have. Where they are None nothing is measured otherwise: they are left out, so that
older points keep their ids."""
SIMULATION_ADDED_LATER = {
    "arrival_delay_s": 0.0,
    "slowdown": 1.0,
    "serial_rounds": False,
    "kv_link_bytes_per_s": None,
    "kv_link_delay_s": 0.0,
}
"""Likewise of a simulated device: left out at the value that changes nothing."""


@dataclass(frozen=True, slots=True)
class PointInput:
    """What a point reads beside its settings.

    trace_digest: of the trace's rows. profile_digest: of the profile its speed factor and predictor come from; empty
    for a server that has none. device_profile_digest: of the profile that a simulated device runs on; empty for others.
    """

    trace_digest: str
    profile_digest: str
    slo_speed_factor: float
    device_profile_digest: str = ""


def point_id(point: PointSettings, given: PointInput) -> str:
    """A readable stem and a hash: `flowprefill-operator-r2-s0-1f0c...`."""
    return f"{stem(point)}-{fingerprint(point, given)[:HASH_DIGITS]}"


def fingerprint(point: PointSettings, given: PointInput) -> str:
    """SHA-256 of everything that decides what is measured. Where files lie is left out: their content counts."""
    settings = settings_mapping(point)
    settings["device"].pop("profile")
    settings["workload"].pop("path")
    simulation = settings["device"]["simulation"]
    if simulation is not None:
        simulation.pop("profile")
        for name, nothing in SIMULATION_ADDED_LATER.items():
            if simulation[name] == nothing:
                simulation.pop(name)
    # The label is drawn, not measured.
    settings["system"].pop("series")
    settings["system"].pop("without_url")
    for group, name in ADDED_LATER:
        if settings[group].get(name) is None:
            settings[group].pop(name, None)
    content: dict[str, Any] = {
        "settings": settings,
        "trace": given.trace_digest,
        "profile": given.profile_digest,
        "slo_speed_factor": given.slo_speed_factor,
        **({"device_profile": given.device_profile_digest} if given.device_profile_digest else {}),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def stem(point: PointSettings) -> str:
    """What a person looks for in a listing: system, what is special about it, rate, SLO scale, seed."""
    system = point.system
    parts = [slug(system.series)]
    if slug(system.name) not in parts[0]:
        parts.insert(0, slug(system.name))
    parts.append(f"r{point.load.rate_scale:g}")
    if point.slo_scale != 1:
        parts.append(f"x{point.slo_scale:g}")
    parts.append(f"s{point.load.seed}")
    return "-".join(parts)


def slug(text: str) -> str:
    """Lower-case letters, digits and underscores."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")
