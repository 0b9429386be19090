"""The preemption gate: where an executing task is asked to stop, and how far the host may launch ahead of a device."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from engine.core.clock import NS_PER_MS, NS_PER_S

NEVER = 1 << 62

LONGEST_SLEEP_NS = 50_000
"""Between two looks at a device: what ends earlier than predicted leaves it idle for no longer."""


class Gate:
    """One task's flag. The executing thread reads `stop_index`, one attribute, at every boundary.

    asked_at_ns, stopped_at_ns: stamps of the last pause asked and of the stop it led to; None = not (yet).
    """

    __slots__ = ("asked_at_ns", "stop_index", "stopped_at_ns")

    def __init__(self) -> None:
        self.stop_index = NEVER
        self.asked_at_ns: int | None = None
        self.stopped_at_ns: int | None = None

    def stop_at(self, index: int, now_ns: int) -> None:
        """Ask to stop at the first boundary at or after the operator of this absolute index; 0 = at the next one."""
        self.asked_at_ns, self.stopped_at_ns = now_ns, None
        self.stop_index = index

    def open(self) -> None:
        """Take back what was asked: the task may run to its end."""
        self.stop_index = NEVER


class DeviceEvent(Protocol):
    """What a launch window needs of a device's event (`torch.cuda.Event` has it)."""

    def record(self) -> None:
        """Mark the end of everything launched so far."""
        ...

    def synchronize(self) -> None:
        """Wait until the mark is reached."""
        ...

    def query(self) -> bool:
        """Whether the mark is reached."""
        ...

    def elapsed_time(self, end_event: Any, /) -> float:
        """Milliseconds on the device from this mark to a later one; both are reached."""
        ...


class LaunchWindow:
    """Bounds what a device has in flight, so that a pause does not wait for much.

    The next operator may be launched when what is in flight is predicted to end within `bound_ns`, or when nothing is
    in flight any more. So a pause waits for the bound and one operator at most, if the predictions hold, and the device
    never idles while the bound covers the time a launch takes. Never waits for the whole stream.

    bound_ns: 0 = an operator is launched when the one before has ended. learn: told the flops of an operator and how
    long it took, as the events saw it. now_ns, sleep_s: the clock, and how to let it pass.
    """

    def __init__(
        self,
        bound_ns: int,
        new_event: Callable[[], DeviceEvent],
        learn: Callable[[int, int], None] | None = None,
        now_ns: Callable[[], int] = time.monotonic_ns,
        sleep_s: Callable[[float], None] = time.sleep,
    ) -> None:
        self._bound_ns = bound_ns
        self._new_event = new_event
        self._learn = learn
        self._now_ns = now_ns
        self._sleep_s = sleep_s
        self._flying: deque[_Flying] = deque()
        self._flying_ns = 0
        self._first_since_ns = 0
        self._looked_at_ns = 0
        self._landed: DeviceEvent | None = None

    def has_room(self) -> bool:
        """Whether another operator may be launched now; does not wait."""
        while self._flying and self._flying[0].event.query():
            self._land()
        self._looked_at_ns = self._now_ns()
        return not self._flying or self._left_ns() < self._bound_ns

    def before_launch(self) -> None:
        """Wait until another operator may be launched."""
        while not self.has_room():
            if self._bound_ns == 0:
                self._flying[-1].event.synchronize()
            else:
                self._sleep_s(max(1, min(self._left_ns() - self._bound_ns, LONGEST_SLEEP_NS)) / NS_PER_S)

    def launched(self, predicted_ns: int, flops: int = 0) -> None:
        """An operator was launched that is predicted to take this long. flops: what `learn` is told it by."""
        event = self._new_event()
        event.record()
        if not self._flying:
            self._first_since_ns = self._now_ns()
        self._flying.append(_Flying(event, predicted_ns, flops))
        self._flying_ns += predicted_ns

    def drain(self) -> None:
        """Wait until nothing is in flight."""
        if self._flying:
            self._flying[-1].event.synchronize()
        while self._flying:
            self._land()

    def _left_ns(self) -> int:
        """Predicted time until nothing is in flight; the first one may be late, the others follow it."""
        first_ns = self._flying[0].predicted_ns
        ran_ns = self._now_ns() - self._first_since_ns
        return self._flying_ns - min(first_ns, ran_ns)

    def _land(self) -> None:
        first = self._flying.popleft()
        self._flying_ns -= first.predicted_ns
        # The next one began when this one ended: as predicted, but after the last look and before this one.
        ended_at_ns = max(self._looked_at_ns, self._first_since_ns + first.predicted_ns)
        self._first_since_ns = min(ended_at_ns, self._now_ns())
        if self._learn is not None:
            if self._landed is not None:
                self._learn(first.flops, round(self._landed.elapsed_time(first.event) * NS_PER_MS))
            self._landed = first.event


@dataclass(frozen=True, slots=True)
class _Flying:
    event: DeviceEvent
    predicted_ns: int
    flops: int
