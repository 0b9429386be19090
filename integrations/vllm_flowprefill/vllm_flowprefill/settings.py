"""The plugin's settings: the object `flowprefill` of vLLM's --additional-config."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, get_args

Granularity = Literal["none", "chunk", "layer", "half_layer", "operator"]
Order = Literal["s_edf", "edf"]
NESTING: tuple[Granularity, ...] = ("layer", "half_layer", "operator")
"""Granularities that stop a step in its middle; the others need the scheduler class alone."""


class SettingError(ValueError):
    """A setting that cannot be; one sentence that names it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a server is asked for.

    granularity: none = stock order; chunk = S-EDF between steps; the rest also stop a step at its boundaries.
    order: of prefills, as in engine.scheduling.policies. s_edf puts what can no longer meet its deadline last.
    default_ttft_slo_s: TTFT SLO of a request that states none; None = such a request has none.
    max_depth: most prefills that stand preempted at one time.
    predictor_s: coefficients c0 ... c3 of engine.scheduling.predictors.polynomial, in seconds; None = learnt from the
        server's own steps.
    nesting_log: file that gets one JSON line per preemption; None = none is written.
    """

    granularity: Granularity = "none"
    order: Order = "s_edf"
    default_ttft_slo_s: float | None = None
    max_depth: int = 4
    predictor_s: tuple[float, float, float, float] | None = None
    nesting_log: str | None = None

    def __post_init__(self) -> None:
        for name, known in (("granularity", get_args(Granularity)), ("order", get_args(Order))):
            if getattr(self, name) not in known:
                raise SettingError(f"flowprefill.{name} must be one of {', '.join(known)}, got {getattr(self, name)!r}")
        if self.default_ttft_slo_s is not None and not is_duration(self.default_ttft_slo_s):
            raise SettingError(f"flowprefill.default_ttft_slo_s must be above 0, got {self.default_ttft_slo_s!r}")
        if not _is_whole(self.max_depth) or not 1 <= self.max_depth <= 64:
            raise SettingError(f"flowprefill.max_depth must be between 1 and 64, got {self.max_depth!r}")
        if self.predictor_s is not None and not _is_four_numbers(self.predictor_s):
            raise SettingError(f"flowprefill.predictor_s must be four numbers, got {self.predictor_s!r}")


def is_duration(value: object) -> bool:
    """Whether a value is a number of seconds above 0 and below a day's length times a thousand."""
    return isinstance(value, int | float) and _is_number(value) and 0 < value < 86_400_000


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_four_numbers(value: object) -> bool:
    return isinstance(value, tuple) and len(value) == 4 and all(map(_is_number, value))


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def read_settings(additional_config: object) -> Settings:
    """The settings among vLLM's additional config. Raises SettingError."""
    given = additional_config.get("flowprefill", {}) if isinstance(additional_config, Mapping) else {}
    if not isinstance(given, Mapping):
        raise SettingError(f"flowprefill in --additional-config must be an object, got {given!r}")
    known = {field.name for field in dataclasses.fields(Settings)}
    for name in given:
        if name not in known:
            raise SettingError(f"flowprefill.{name} is no setting; there are {', '.join(sorted(known))}")
    values: dict[str, Any] = dict(given)
    if isinstance(values.get("predictor_s"), list):
        values["predictor_s"] = tuple(values["predictor_s"])
    return Settings(**values)
