"""The table NAME_fairness.csv: how evenly each measured point served its requests, all and by class."""

from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path

from harness.assembly.reading import SettingsError
from harness.experiments.profile_step import CACHE, read_profile
from harness.measurement.fairness import fairness
from harness.measurement.store import Point
from harness.measurement.table_file import PACKED, Row, table_text, write_table

Unloaded = Callable[[int], float]
"""Prompt tokens as sent -> seconds to the first token when nothing else runs."""

COLUMNS = (
    "point", "series", "rate_scale", "seed", "class", "n", "served", "completion_mean_s", "completion_p99_s",
    "completion_variance_s2", "slowdown_mean", "slowdown_p99", "jain", "few_samples",
)  # fmt: skip
MOST_BYTES = 200_000
"""A larger table is packed."""


def fairness_rows(point: Point, unloaded_s: Unloaded | None) -> list[Row]:
    """One over all requests of a point that count, one per class.

    unloaded_s: None = not known, the slowdowns stay empty.
    """
    facts = point.facts
    place = {name: getattr(facts, name) for name in ("point", "series", "rate_scale", "seed")}
    rows: list[Row] = []
    for one in fairness(point.counted, unloaded_s):
        values = asdict(one)
        rows.append({**place, "class": values.pop("name"), **values})
    return rows


def write_fairness(tables: Path, experiment: str, rows: Iterable[Row]) -> Path:
    """Write the table whole; returns its path."""
    rows = list(rows)
    packing = PACKED if len(table_text(rows, COLUMNS)) > MOST_BYTES else ""
    path = tables / f"{experiment}_fairness.csv{packing}"
    write_table(path, rows, COLUMNS)
    return path


class ProfiledTimes:
    """Unloaded times of points from the profiles they were measured with; each profile is read once."""

    def __init__(self, cache: Path = CACHE) -> None:
        self._cache = cache
        self._known: dict[str, Unloaded | None] = {}

    def of(self, point: Point) -> Unloaded | None:
        """None where the point had no profile (an external server), or it is not to be found here unchanged."""
        digest = str(point.settings.get("input", {}).get("profile_sha256", ""))
        if digest and digest not in self._known:
            named = point.settings.get("device", {}).get("profile")
            places = [Path(named)] if named else sorted(self._cache.glob("*/*.json"))
            self._known[digest] = _first_with(digest, places)
        return self._known.get(digest)


def _first_with(digest: str, places: Iterable[Path]) -> Unloaded | None:
    for path in places:
        try:
            profile = read_profile(path)
        except SettingsError:
            continue
        if profile.digest == digest:
            return profile.seconds_of()
    return None
