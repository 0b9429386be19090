"""How the jobs of a sweep ended, where a launcher runs them in processes of their own: a small file each."""

import contextlib
import dataclasses
import json
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.assembly.reading import SettingsError
from harness.measurement.table_file import write_whole

FOLDER = Path("outputs") / "sweeps"


@dataclass(frozen=True, slots=True)
class Outcome:
    """number: of the job in its sweep. settings: what the job was given. status: its exit status. reason: of a
    failure, where it is known."""

    number: int
    settings: str
    status: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class JobOutcomes:
    """A folder of one sweep, that its jobs write into, on whichever machine they run."""

    folder: Path

    def add(self, outcome: Outcome) -> None:
        """Keep how a job ended. Raises OSError."""
        content = json.dumps(dataclasses.asdict(outcome), sort_keys=True).encode()
        write_whole(self.folder / f"{outcome.number}.json", content)

    def ended(self) -> list[Outcome]:
        """Those that ended so far, by number."""
        found = [Outcome(**json.loads(path.read_bytes())) for path in self.folder.glob("[0-9]*.json")]
        return sorted(found, key=lambda outcome: outcome.number)


@contextlib.contextmanager
def sweep_outcomes(parent: Path = FOLDER) -> Iterator[JobOutcomes]:
    """A folder that no other sweep has, gone at the end. Raises SettingsError where none can be made."""
    try:
        parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(dir=parent.absolute()))
    except OSError as error:
        raise SettingsError(f"a sweep cannot write to {parent}: {error.strerror}") from error
    try:
        yield JobOutcomes(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # another sweep is at it
            parent.rmdir()
