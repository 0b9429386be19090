"""Whether results can be kept: asked before anything is measured, since hours would be spent for nothing."""

import errno
import os
import tempfile
from pathlib import Path

from harness.assembly.reading import SettingsError

PROBE_BYTES = 32 * 1024
"""Written and taken back: a full disk still makes empty files. As large as a point of a few thousand requests."""

GO_ON = "once that is mended, the same command goes on from here"


def require_writable(results: Path, experiment: str) -> None:
    """Raise SettingsError where the experiment's points or tables cannot be kept. Makes no folder."""
    for folder in (results / "raw" / experiment, results / "tables"):
        try:
            require_room(folder)
        except OSError as error:
            place = _nearest_link(folder) if error.errno in (errno.ENOENT, errno.ELOOP) else None
            why = error.strerror if place is None else f"{place} is a link that leads nowhere"
            raise SettingsError(f"output.results: cannot write to {folder}: {why}") from error


def require_room(folder: Path) -> None:
    """Raise OSError, with the folder's name, where no file can be written into it, nor where it is to be made."""
    try:
        with tempfile.TemporaryFile(dir=_nearest(folder), buffering=0) as file:
            left = PROBE_BYTES
            while left:  # a disk that is nearly full takes a part
                left -= file.write(bytes(left))
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(folder)) from error


def reason(error: OSError) -> str:
    """What the system says, with the file where it is known: without its number."""
    said = error.strerror or str(error)
    return said if error.filename is None else f"{said}: {error.filename}"


def _nearest_link(folder: Path) -> Path | None:
    """A link on the way to the folder whose target is missing, a loop's included."""
    places = (folder, *folder.absolute().parents)
    return next((place for place in places if place.is_symlink() and not place.exists()), None)


def _nearest(folder: Path) -> Path:
    """The folder, or the nearest above it that is there. A link that leads nowhere is there, and no place for files."""
    for place in (folder, *folder.absolute().parents):
        try:
            os.lstat(place)
        except FileNotFoundError:
            continue
        return place
    return folder
