"""Series named after a setting and its value: "alpha 0.05", "FlowPrefill, error 0.3"."""

import re
from dataclasses import dataclass

_SETTING = re.compile(r"(?:(?P<base>.+), )?(?P<name>[^,\d]+?) (?P<value>\d+(?:\.\d+)?)")


@dataclass(frozen=True, slots=True)
class SeriesSetting:
    """base: the system it is a variant of, empty where the name does not say. name: the setting. value: its value."""

    base: str
    name: str
    value: float


def setting_in(series: str) -> SeriesSetting | None:
    """The setting a series is named after; None where its name ends in no number of its own."""
    found = _SETTING.fullmatch(series)
    return None if found is None else SeriesSetting(found["base"] or "", found["name"].strip(), float(found["value"]))
