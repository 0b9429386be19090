"""The bodies of a run's requests: made before the clock starts, of a long run those that fit, the others in time."""

import collections.abc as c
from collections import deque

from engine.core.trace import PlannedRequest
from harness.loadgen.request_body import PreparedRequest, prepare
from harness.loadgen.settings import PlayerSettings, Target

AHEAD_BYTES = 128 << 20
"""Of bodies waiting to be sent. Runs of a few minutes stay below it, and serialise nothing while they are timed."""


class Bodies:
    """Gives the requests in order, each with its body; holds at most `ahead_bytes` of bodies, and one more."""

    def __init__(
        self,
        plans: c.Sequence[PlannedRequest],
        target: Target,
        settings: PlayerSettings,
        ahead_bytes: int = AHEAD_BYTES,
    ) -> None:
        self._plans = iter(plans)
        self._target = target
        self._settings = settings
        self._room_bytes = ahead_bytes
        self._made: deque[PreparedRequest] = deque()
        self._left = len(plans)
        while self.make_one():
            pass

    def make_one(self) -> bool:
        """Make one more in a spare moment; whether there was one to make, and room for it."""
        if self._room_bytes <= 0 or not self._left:
            return False
        self._made.append(self._prepare())
        self._room_bytes -= len(self._made[-1].body)
        return True

    def take(self) -> PreparedRequest:
        """The next request; made now if no spare moment came."""
        if not self._made:
            return self._prepare()
        first = self._made.popleft()
        self._room_bytes += len(first.body)
        return first

    def _prepare(self) -> PreparedRequest:
        self._left -= 1
        return prepare(next(self._plans), self._target, self._settings)
