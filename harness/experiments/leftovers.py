"""What killed runs left in a results folder: half-written files, points moved aside, locks nobody holds."""

import contextlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.experiments.locks import in_use
from harness.measurement.store import PointState, point_state

HALF, ASIDE, LOCK = ".partial", ".replaced", ".lock"


@contextmanager
def results_in_use(results: Path) -> Iterator[None]:
    """For as long as a run writes there. What earlier ones left is removed first, unless another run is at work.

    A folder that stays empty goes again. Raises OSError.
    """
    raw = results / "raw"
    made = [folder for folder in (raw, results) if not folder.exists()]
    raw.mkdir(parents=True, exist_ok=True)
    try:
        with in_use(raw, lambda: remove_leftovers(results)):
            yield
    finally:
        for folder in made:
            with contextlib.suppress(OSError):  # it is no longer empty
                folder.rmdir()


def remove_leftovers(results: Path) -> list[Path]:
    """Remove them; returns what was removed. A whole point moved aside for one that never came is put back.

    Only while no run writes there. What cannot be removed stays: it is never read.
    """
    folders = [results / "tables", *(path for path in (results / "raw").glob("*") if path.is_dir())]
    found = [path for folder in folders for path in sorted(folder.glob(".?*.*")) if path.suffix in (HALF, ASIDE, LOCK)]
    for path in found:
        with contextlib.suppress(OSError):
            if path.suffix == ASIDE and _put_back(path):
                continue
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
    return found


def _put_back(path: Path) -> bool:
    """Names are `.POINT.SOMETHING.replaced`."""
    place = path.with_name(path.name[1 : -len(ASIDE)].rpartition(".")[0])
    if point_state(place) is PointState.FINISHED or point_state(path) is not PointState.FINISHED:
        return False
    if place.exists():
        shutil.rmtree(place)
    path.rename(place)
    return True
