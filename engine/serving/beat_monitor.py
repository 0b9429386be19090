"""What the HTTP side knows of the engine's beats (`engine.serving.watchdog`)."""

from collections.abc import Callable


class BeatMonitor:
    """Beats as they come, and their absence.

    limit_s: how long one operator may take. now_s: any clock that does not go back.
    """

    def __init__(self, limit_s: float, now_s: Callable[[], float]) -> None:
        # Four come in the limit.
        self._longest_s = 1.25 * limit_s
        self._now_s = now_s
        self._beaten_at_s: float | None = None
        self._stall = ""
        self.stalls = 0

    def beat(self, stall: str, stalls: int) -> None:
        """One came."""
        self._beaten_at_s, self._stall, self.stalls = self._now_s(), stall, stalls

    @property
    def silent(self) -> bool:
        """Whether beats came and then no more."""
        return self._beaten_at_s is not None and self._now_s() - self._beaten_at_s > self._longest_s

    @property
    def stall(self) -> str:
        """The sentence about what hangs; "" while all goes on."""
        if self.silent and self._beaten_at_s is not None:
            return f"the engine process has given no sign of life for {self._now_s() - self._beaten_at_s:.3g} s"
        return self._stall
