"""From composed settings to points ready to run: trace read, profile at hand, speed factor and identity known."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.core.trace import Trace
from harness.assembly.point import read_point
from harness.assembly.requests import LoadedTrace, read_trace, speed_factor, window_of
from harness.assembly.settings import PointSettings
from harness.assembly.stretch import stretch_factor
from harness.experiments.cells import Axes
from harness.experiments.compose import Config, Job
from harness.experiments.fingerprint import PointInput, point_id
from harness.experiments.machine import resolve_device
from harness.experiments.profile_step import Profile, profile_of, read_profile, require_model
from harness.measurement.tables import PointFacts
from workloads.settings import WorkloadSettings

AXES = (
    "load.rate_scale", "load.seed", "slo.scale", "workload.path", "device.profile", "device.pin",
    "system.base_url", "system.served_model", "system.api_key_env",
)  # fmt: skip
"""Settings that have a column of their own, or that change no number: no label needs to name them."""
LOAD_AXES = ("load.rate_scale", "load.seed")
OWN_TRACE = "csv"
"""Name and format of the workload that reads a trace of the user's."""
LABELLED = {"system": "series", "workload": "workload", "slo": "workload", "load": "protocol", "protocol": "protocol"}


@dataclass(frozen=True, slots=True)
class Prepared:
    """A point ready to run. labels: the texts its row has for series, workload, protocol, model, simulated device."""

    settings: PointSettings
    point: str
    given: PointInput
    profile: Profile | None
    window: Trace
    labels: Mapping[str, str]

    @property
    def expected_s(self) -> float:
        """How long its arrivals last."""
        return self.window.span_s * self.given.slo_speed_factor / self.settings.load.rate_scale

    def facts(self, rate_rps: float) -> PointFacts:
        """The settings columns of its row."""
        point, system = self.settings, self.settings.system
        return PointFacts(
            experiment=point.experiment,
            point=self.point,
            series=self.labels["series"],
            system=system.name,
            policy=system.policy,
            granularity=system.granularity or "",
            chunk_tokens=system.chunk_tokens,
            batching=system.batching or "",
            backend="simulator" if point.device.simulated else system.backend,
            source="simulated" if point.device.simulated else "measured",
            model=self.labels["model"],
            device=self.device,
            workload=self.labels["workload"],
            protocol=self.labels["protocol"],
            length_scale=point.model.length_scale,
            slo_scale=point.slo_scale,
            slo_speed_factor=self.given.slo_speed_factor,
            rate_scale=point.load.rate_scale,
            rate_rps=rate_rps,
            seed=point.load.seed,
        )

    @property
    def discard_first_s(self) -> float:
        """How long the requests due at first do not count, on this device."""
        return (self.settings.protocol.discard_first_s or 0) * self.given.slo_speed_factor

    @property
    def device(self) -> str:
        """The device's name; an external server's is not known."""
        if self.settings.device.simulated:
            return self.labels["device"]
        return "unknown" if self.profile is None else self.profile.device


class Preparer:
    """Prepares points; each trace is read once, each profile measured at most once.

    user: settings the user typed; labels name those that no column shows, so that no series mixes settings.
    """

    def __init__(self, tell: Callable[[str], None], user: Mapping[str, str]) -> None:
        self._tell = tell
        self._user = user
        self._traces: list[tuple[WorkloadSettings, LoadedTrace]] = []
        self._profiles: dict[tuple[object, ...], Profile] = {}
        self._device_profiles: dict[str, Profile] = {}
        self._factors: dict[str, float] = {}

    def prepare_all(self, job: Job, axes: Sequence[Axes]) -> list[Prepared]:
        """The points of an experiment, each once. Raises SettingsError.

        Composing takes longer than all else: what differs in its load only is composed once.
        """
        composed: dict[str, Config] = {}
        points: dict[str, Prepared] = {}
        for one in axes:
            load = {key.partition(".")[2]: value for key, value in one.items() if key in LOAD_AXES}
            rest = repr(sorted((key, repr(value)) for key, value in one.items() if key not in LOAD_AXES))
            if rest not in composed or not job.load_stands_alone:
                composed[rest] = job.compose(one)
            config = composed[rest]
            ready = self.prepare({**config, "load": {**config["load"], **load}})
            points.setdefault(ready.point, ready)
        return list(points.values())

    def prepare(self, config: Mapping[str, Any]) -> Prepared:
        """Raises SettingsError."""
        point = read_point(config)
        if point.system.backend != "server":
            point = dataclasses.replace(point, device=resolve_device(point.device))
        loaded = self._trace(point.workload)
        window, _ = window_of(point, loaded)
        profile = self._profile(point)
        given = PointInput(
            loaded.digest,
            "" if profile is None else profile.digest,
            self._factor(point, loaded),
            self._device_profile_digest(point),
        )
        return Prepared(point, point_id(point, given), given, profile, window, labels_of(point, self._user))

    def _factor(self, point: PointSettings, loaded: LoadedTrace) -> float:
        """The speed factor; one for all points that differ in system, load and protocol only."""
        key = repr((point.model, point.device, point.workload))
        if key not in self._factors:
            profile = self._profile(point)
            simulation = point.device.simulation
            if profile is not None and (simulation is None or simulation.stretch == "profile"):
                factor = speed_factor(point, loaded, profile.seconds_of())
            else:
                factor = 1.0 if simulation is None else stretch_factor(point, loaded)
            # Nine digits, as in the tables: the same factor whatever the last bit of a sum.
            self._factors[key] = float(f"{factor:.9g}")
        return self._factors[key]

    def _trace(self, settings: WorkloadSettings) -> LoadedTrace:
        for known, loaded in self._traces:
            if known == settings:
                return loaded
        loaded = read_trace(settings)
        self._tell(loaded.account)
        self._traces.append((settings, loaded))
        return loaded

    def _profile(self, point: PointSettings) -> Profile | None:
        if (point.system.backend == "server" or point.device.simulated) and point.device.profile is None:
            return None
        key = (point.model, point.device, point.workload.max_input)
        if key not in self._profiles:
            self._profiles[key] = profile_of(point, self._tell)
            if point.device.simulated:
                require_model(self._profiles[key], point)
        return self._profiles[key]

    def _device_profile_digest(self, point: PointSettings) -> str:
        """Of the profile that a simulated device runs on; empty where it runs on none."""
        path = None if point.device.simulation is None else point.device.simulation.profile
        if path is None:
            return ""
        if path not in self._device_profiles:
            self._device_profiles[path] = read_profile(Path(path), "device.simulation.profile")
        require_model(self._device_profiles[path], point)
        return self._device_profiles[path].digest


def labels_of(point: PointSettings, user: Mapping[str, str]) -> dict[str, str]:
    """Texts of the columns series, workload, protocol, model, device: each with what the user changed below it.

    device: of simulated points only; a measured one's device has a name of its own.
    """
    labels = {
        "series": point.system.series,
        "workload": point.workload.name,
        "protocol": point.protocol.name,
        "model": point.system.served_model or point.model.name,
        **({"device": point.device.name} if point.device.simulated else {}),
    }
    if point.workload.format == OWN_TRACE and point.workload.path is not None and point.workload.name == OWN_TRACE:
        # A user's own traces have no names; the file's keeps two of them apart.
        labels["workload"] = Path(point.workload.path).name
    for key, value in sorted(user.items()):
        group, _, name = key.lstrip("+~").partition(".")
        column = LABELLED.get(group, group)
        if key in AXES or column not in labels:
            continue
        if name in ("series", "name") or (not name and group != "slo"):
            continue
        if name and value in labels[column].replace("(", " ").replace(")", " ").replace(",", " ").split():
            continue
        labels[column] += f", {name or group}={value}"
    return labels
