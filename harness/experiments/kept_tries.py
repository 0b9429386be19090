"""Earlier measurements of a point, kept beside it: those of a search that were not VALID and were measured again.

A point's folder is `POINT`, its tries are `POINT.try1`, `POINT.try2`, in order; their server's logs go with them.
"""

import re
import shutil
from pathlib import Path

from harness.experiments.locks import exclusive
from harness.experiments.measure import SERVER_LOG
from harness.measurement.store import Point, StoreError, read_point

TRY = re.compile(r"(?P<point>.+)\.try(?P<number>\d+)")


def try_of(folder: Path) -> tuple[str, int] | None:
    """The point a folder is a kept try of, and its number from 1; None for any other folder."""
    found = TRY.fullmatch(folder.name)
    return None if found is None else (found["point"], int(found["number"]))


def kept_tries(folder: Path) -> list[Path]:
    """The tries kept of the point at `folder`, in order of trial."""
    there = [(named[1], path) for path in folder.parent.glob(f"{folder.name}.try*") if (named := try_of(path))]
    return [path for _, path in sorted(there)]


def keep_try(folder: Path) -> None:
    """Make room for another measurement of a point that is there. Raises HeldElsewhereError, OSError."""
    with exclusive(folder.with_name(f".{folder.name}.lock")):
        number = max((named[1] for path in kept_tries(folder) if (named := try_of(path))), default=0) + 1
        aside, log = folder.with_name(f"{folder.name}.try{number}"), folder.with_name(f"{folder.name}.{SERVER_LOG}")
        if log.exists():
            log.rename(aside.with_name(f"{aside.name}.{SERVER_LOG}"))
        folder.rename(aside)


def forget_tries(folder: Path) -> None:
    """Remove the tries of a point that is measured anew. Raises HeldElsewhereError, OSError."""
    with exclusive(folder.with_name(f".{folder.name}.lock")):
        for path in kept_tries(folder):
            path.with_name(f"{path.name}.{SERVER_LOG}").unlink(missing_ok=True)
            shutil.rmtree(path)


def points_tried(folder: Path) -> list[Point]:
    """What was measured in the kept tries whose server survived them (else they say nothing and count for nothing)."""
    found = []
    for path in kept_tries(folder):
        try:
            point = read_point(path)
        except StoreError:  # damaged: told where the tables are written
            continue
        if point.server_alive:
            found.append(point)
    return found
