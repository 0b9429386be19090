"""Where results go, how a command runs its points, and what it tells the person who watches."""

import sys
from dataclasses import dataclass
from pathlib import Path

from engine.core.command_line import OF_THE_MACHINE
from harness.assembly.reading import SettingsError, bounded


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSettings:
    """results: folder of raw points and tables. fail_fast: stop at the first failing point. redo: measure again.

    share_machine: do not wait for other runs on this machine; for tests, whose numbers nobody uses.
    only: one point of the experiment, by its id; None = all. workers: simulations side by side; None = one per core.
    tables_only: write the tables again from the points that are there, and run nothing.
    """

    results: str
    fail_fast: bool = False
    redo: bool = False
    share_machine: bool = False
    only: str | None = None
    workers: int | None = bounded(default=None, at_least=1)
    tables_only: bool = False

    def __post_init__(self) -> None:
        if not self.results.strip():
            raise SettingsError("output.results must name a folder, and is empty")
        # Shells leave the ~ in `output.results=~/mine` as it is.
        object.__setattr__(self, "results", str(Path(self.results).expanduser()))


def tell(text: str) -> None:
    """A line for the person who watches. A log on a full disk loses it; a reader that left ends the command."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError as error:
        if error.errno not in OF_THE_MACHINE:
            raise


def clock_text(seconds: float) -> str:
    """Minutes and seconds, or hours, as a clock shows them."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
