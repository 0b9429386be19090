"""The preemption gate: where an executing task is asked to stop, and how far the host may launch ahead of a device."""

from collections import deque
from collections.abc import Callable
from typing import Protocol

NEVER = 1 << 62


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


class LaunchWindow:
    """Bounds what a device has in flight, so that a pause does not wait for much.

    The next operator may be launched while fewer than two are in flight, or while the predicted time of those
    in flight is under `bound_ns`. Waits on the oldest event, never on the whole stream.
    """

    def __init__(self, bound_ns: int, new_event: Callable[[], DeviceEvent]) -> None:
        self._bound_ns = bound_ns
        self._new_event = new_event
        self._flying: deque[tuple[DeviceEvent, int]] = deque()
        self._flying_ns = 0

    def has_room(self) -> bool:
        """Whether another operator may be launched now; does not wait."""
        while self._flying and self._flying[0][0].query():
            self._land()
        return len(self._flying) < 2 or self._flying_ns < self._bound_ns

    def before_launch(self) -> None:
        """Wait until another operator may be launched."""
        while not self.has_room():
            self._flying[0][0].synchronize()
            self._land()

    def launched(self, predicted_ns: int) -> None:
        """An operator was launched that is predicted to take this long."""
        event = self._new_event()
        event.record()
        self._flying.append((event, predicted_ns))
        self._flying_ns += predicted_ns

    def drain(self) -> None:
        """Wait until nothing is in flight."""
        if self._flying:
            self._flying[-1][0].synchronize()
        self._flying.clear()
        self._flying_ns = 0

    def _land(self) -> None:
        self._flying_ns -= self._flying.popleft()[1]
