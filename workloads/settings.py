"""The settings of a workload, as conf/workload/*.yaml gives them: one flat group, read once, then split by use."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from workloads.plan import Arrivals, Lengths, PlanSettings
from workloads.traces.admission import AdmissionRules, RowPolicy
from workloads.traces.cells import ArrivalUnit
from workloads.traces.qwen import FollowUp
from workloads.window import OverLong, WindowSettings

Format = Literal["sample", "synthetic", "azure", "mooncake", "qwen", "lengths", "burstgpt", "csv"]


@dataclass(frozen=True, slots=True)
class WorkloadSettings:
    """Every key a workload file may hold. Options of one format, set for another, are refused (see catalogue).

    name: what figures and tables call the workload. format: which loader reads `path`.
    follow_up: qwen. columns, arrival_unit: csv. rate_rps, arrival_seed: lengths. requests, span_s, process,
    process_cv, trace_seed: synthetic. The rest: AdmissionRules, WindowSettings, PlanSettings.
    """

    name: str
    format: Format
    path: str | None = None
    bad_rows: RowPolicy = "fail"
    zero_rows: RowPolicy = "drop"
    max_rows: int | None = None
    any_rate: bool = False
    window_start_s: float = 0.0
    window_s: float | None = 120.0
    max_input: int = 16384
    over_long: OverLong = "drop"
    repeat_to_s: float | None = None
    arrivals: Arrivals = "recorded"
    arrival_cv: float | None = None
    output_tokens: int | Literal["trace"] = 1
    lengths: Lengths | None = None
    follow_up: FollowUp | None = None
    columns: Mapping[str, str | None] = field(default_factory=dict)
    arrival_unit: ArrivalUnit | None = None
    rate_rps: float | None = None
    arrival_seed: int | None = None
    requests: int | None = None
    span_s: float | None = None
    process: Literal["poisson", "gamma"] | None = None
    process_cv: float | None = None
    trace_seed: int | None = None

    def __post_init__(self) -> None:
        """Conflicts are found when the settings are read, not when the run starts."""
        self.admission_rules()
        self.window_settings()
        self.plan_settings()

    def admission_rules(self) -> AdmissionRules:
        """The reading half."""
        return AdmissionRules(self.bad_rows, self.zero_rows, self.max_rows, self.any_rate)

    def window_settings(self) -> WindowSettings:
        """The cutting half."""
        return WindowSettings(self.window_start_s, self.window_s, self.max_input, self.over_long, self.repeat_to_s)

    def plan_settings(
        self, rate_scale: float = 1.0, time_stretch: float = 1.0, length_scale: float = 1.0
    ) -> PlanSettings:
        """The planning half, with what the load and the device add."""
        return PlanSettings(
            self.arrivals, self.arrival_cv, rate_scale, time_stretch, length_scale, self.output_tokens, self.lengths
        )
