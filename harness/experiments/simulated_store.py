"""Finished simulated points of an experiment, in one file: thousands of them, and none costs more than its simulation.

`simulated.jsonl.gz` holds a line for each point, in order of their ids: its table row and its settings, nothing of the
day, so that the same seeds give the same bytes. `simulated_runs.json` says which run, at which commit, made which
points. Both are written whole; two runs at once both survive.
"""

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.experiments.locks import locked
from harness.experiments.run_list import read_run_list, write_run_list
from harness.measurement.store import StoreError
from harness.measurement.table_file import write_whole

POINTS = "simulated.jsonl.gz"
RUNS = "simulated_runs.json"
DIGITS = 9
"""Of a float kept: as in the tables."""


@dataclass(frozen=True, slots=True)
class SimulatedPoint:
    """row: of the point table. settings: what the point's hash was made of."""

    row: Mapping[str, Any]
    settings: Mapping[str, Any]

    @property
    def point(self) -> str:
        """Its id."""
        return str(self.row["point"])


def rounded(row: Mapping[str, object]) -> dict[str, object]:
    """A row as it is kept."""
    return {n: float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value for n, value in row.items()}


def read_simulated(folder: Path) -> dict[str, SimulatedPoint]:
    """The points by id; empty where there are none. Raises StoreError for a file that is damaged."""
    path = folder / POINTS
    if not path.is_file():
        return {}
    try:
        lines = gzip.decompress(path.read_bytes()).decode().splitlines()
        points = [SimulatedPoint(**json.loads(line)) for line in lines]
        return {point.point: point for point in points}
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} is damaged ({error}): remove it, and its points are simulated anew") from error


def add_simulated(folder: Path, points: Mapping[str, SimulatedPoint], origin: Mapping[str, Any]) -> None:
    """Add points to the store, replacing those of the same id. origin: the provenance of this run."""
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        kept = {**read_simulated(folder), **points}
        lines = (
            json.dumps({"row": one.row, "settings": one.settings}, sort_keys=True, allow_nan=False)
            for _, one in sorted(kept.items())
        )
        # The runs first: a point without its run could not be walked back.
        write_run_list(folder / RUNS, points, origin)
        write_whole(folder / POINTS, gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0))


def read_runs(folder: Path) -> list[dict[str, Any]]:
    """Which run made which points, as of `read_run_list`. Raises StoreError."""
    return read_run_list(folder / RUNS)
