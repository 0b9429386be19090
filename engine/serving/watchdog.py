"""Tells a hung operator: the executing task has passed no operator boundary for too long.

The engine's side looks and sends a beat over the channel every quarter of the limit. The HTTP side hears them: a beat
may name a stall, and beats that do not come say that the whole process hangs (an operator that keeps the
interpreter to itself would hang the watchdog, too).
"""

import logging
import threading
from collections.abc import Callable

from engine.serving.channel import BlockingChannel
from engine.torch_backend.executor import Progress

LOG = logging.getLogger("engine")
LOOKS = 4
"""Looks without progress that make a stall; the limit is this many periods long."""


class Watchdog:
    """Counts looks, not time: a clock that jumps makes no stall.

    progress: where the executing task stands. limit_s: how long one operator may take.
    """

    def __init__(self, progress: Callable[[], Progress | None], limit_s: float) -> None:
        self._progress = progress
        self._period_s = limit_s / LOOKS
        self._seen: Progress | None = None
        self._unchanged = 0
        self.stalls = 0

    def look(self) -> str:
        """One look, a period after the last. The sentence about a stall; "" while all goes on."""
        progress = self._progress()
        same = progress is not None and progress == self._seen
        self._seen, self._unchanged = progress, self._unchanged + 1 if same else 0
        if progress is None or self._unchanged < LOOKS:
            return ""
        sentence = (
            f"operator {progress.operator} of task {progress.task_id} has not ended for "
            f"{self._unchanged * self._period_s:.3g} s (requests: {', '.join(progress.request_ids)})"
        )
        if self._unchanged == LOOKS:
            self.stalls += 1
            LOG.error("watchdog: %s", sentence)
        return sentence

    def start(self, channel: BlockingChannel) -> None:
        """Look and send beats, on a thread of its own, until the process ends or the other side leaves."""
        threading.Thread(target=self._serve, args=(channel,), name="watchdog", daemon=True).start()

    def _serve(self, channel: BlockingChannel) -> None:
        never = threading.Event()
        try:
            while not never.wait(self._period_s):
                channel.send({"kind": "beat", "stall": self.look(), "stalls": self.stalls})
        except OSError:
            LOG.debug("the watchdog ends: the HTTP process is gone")
