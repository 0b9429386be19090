"""Progress of a run, on stderr: counts and the time left of the schedule."""

import sys
import time
from dataclasses import dataclass
from typing import Protocol, TextIO

from harness.loadgen.settings import ShowProgress

QUIET_NEEDED_S = 0.02
"""Drawing holds the event loop for some milliseconds: it is done only when nothing is due that soon."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a run stands. left_s: until the last due instant (below 0 while draining)."""

    due: int
    sent: int
    ended: int
    left_s: float

    def line(self) -> str:
        """One line for a human."""
        left = f"{self.left_s:.0f} s of the schedule left" if self.left_s > 0 else "draining"
        return f"sent {self.sent}/{self.due}, ended {self.ended}, {left}"


class Progress(Protocol):
    """Something that shows how far a run is."""

    def show(self, standing: Standing) -> None:
        """Draw the present standing."""
        ...

    def close(self) -> None:
        """The run is over."""
        ...


class NoProgress:
    """Shows nothing."""

    def show(self, standing: Standing) -> None:
        """See Progress."""

    def close(self) -> None:
        """See Progress."""


class PlainProgress:
    """A line every few seconds, and the last standing at the end."""

    def __init__(self, out: TextIO | None = None, every_s: float = 5.0) -> None:
        self._out = sys.stderr if out is None else out
        self._every_s = every_s
        self._shown_at_s = time.monotonic()
        self._last: Standing | None = None

    def show(self, standing: Standing) -> None:
        """See Progress."""
        self._last = standing
        if time.monotonic() - self._shown_at_s >= self._every_s:
            self._shown_at_s = time.monotonic()
            print(standing.line(), file=self._out, flush=True)

    def close(self) -> None:
        """See Progress."""
        if self._last is not None:
            print(self._last.line(), file=self._out, flush=True)


class RichProgress:
    """A bar on a terminal, drawn only when asked: rich's own thread would disturb the timing."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bar

        columns = (TextColumn("requests"), BarColumn(), TextColumn("{task.fields[line]}"))
        self._bar = Bar(*columns, console=Console(stderr=True), auto_refresh=False)
        self._task = self._bar.add_task("requests", line="")
        self._bar.start()

    def show(self, standing: Standing) -> None:
        """See Progress."""
        self._bar.update(self._task, total=standing.due, completed=standing.ended, line=standing.line())
        self._bar.refresh()

    def close(self) -> None:
        """See Progress."""
        self._bar.stop()


def open_progress(how: ShowProgress) -> Progress:
    """The progress a setting asks for; without rich or a terminal a bar becomes plain lines."""
    if how is ShowProgress.OFF:
        return NoProgress()
    if how is ShowProgress.AUTO and sys.stderr.isatty():
        try:
            return RichProgress()
        except ImportError:
            return PlainProgress()
    return PlainProgress()
