"""Which run made which points: a list of runs, each with its provenance and the ids of what it made last.

Simulated points have one in their experiment's folder (`simulated_store`); a table whose rows have no raw facts has one
beside it, `NAME_runs.json`.
"""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from harness.experiments.locks import locked
from harness.measurement.store import StoreError
from harness.measurement.table_file import write_whole

SUFFIX = "_runs.json"


def read_run_list(path: Path) -> list[dict[str, Any]]:
    """Each with `origin` (a provenance) and `points` (ids); empty where there are none.

    Raises StoreError for a file that is damaged: its points could not be walked back.
    """
    if not path.is_file():
        return []
    try:
        runs = json.loads(path.read_bytes())["runs"]
        if not all(isinstance(run["points"], list) and isinstance(run["origin"], dict) for run in runs):
            raise ValueError("a run lacks its points or its origin")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} is damaged ({error}): put it back, or remove it with its points") from error
    return list(runs)


def write_run_list(path: Path, points: Collection[str], origin: Mapping[str, Any]) -> None:
    """Add a run that made these points; earlier runs lose them. Raises StoreError. Not for two writers at once."""
    before = read_run_list(path)
    others = [
        {**run, "points": [point for point in run["points"] if point not in points]}
        for run in before
        if run["origin"] != origin
    ]
    mine = {point for run in before if run["origin"] == origin for point in run["points"]} | set(points)
    runs = [run for run in others if run["points"]] + [{"origin": dict(origin), "points": sorted(mine)}]
    write_whole(path, (json.dumps({"runs": runs}, indent=1, sort_keys=True) + "\n").encode())


def run_of(runs: Collection[Mapping[str, Any]], point: str) -> Mapping[str, Any]:
    """The provenance of the run that made a point; empty where none is told."""
    found: Mapping[str, Any] = next((run["origin"] for run in runs if point in run["points"]), {})
    return found


def add_table_run(table: Path, points: Collection[str], origin: Mapping[str, Any]) -> None:
    """Keep where rows of a table came from, beside it; two runs may do so at once. Raises StoreError."""
    with locked(table.parent):
        write_run_list(runs_beside(table), points, origin)


def runs_beside(table: Path) -> Path:
    """Where the runs of a table's rows are kept."""
    return table.with_name(f"{table.name.partition('.')[0]}{SUFFIX}")
