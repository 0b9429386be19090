"""Waking at an absolute instant of CLOCK_MONOTONIC, to well under a millisecond.

asyncio's own timers round up to whole milliseconds. On Linux a kernel timer (timerfd) wakes the event
loop instead: precise, and idle until then, so that the client's CPU share keeps its meaning.
"""

import asyncio
import ctypes
import os
import sys
import time
from typing import Protocol

from engine.core.clock import NS_PER_MS, NS_PER_S

_CLOCK_MONOTONIC = 1
_TFD_TIMER_ABSTIME = 1


class Waker(Protocol):
    """Waits for instants, one at a time."""

    async def sleep_until(self, at_ns: int) -> None:
        """Return at `at_ns` or as soon after it as the event loop allows; at once when it has passed."""
        ...

    def close(self) -> None:
        """Give back what it holds."""
        ...


def open_waker() -> Waker:
    """The most precise waker of this system, for the running event loop."""
    return TimerFdWaker() if sys.platform == "linux" else SpinWaker()


class _ITimerSpec(ctypes.Structure):
    """struct itimerspec: repeat every (s, ns), first at (s, ns)."""

    _fields_ = (
        ("every_s", ctypes.c_long),
        ("every_ns", ctypes.c_long),
        ("first_s", ctypes.c_long),
        ("first_ns", ctypes.c_long),
    )


class TimerFdWaker:
    """A Linux kernel timer read by the event loop."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd: int = self._libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create failed")
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._fd, self._fired)
        self._waiting: asyncio.Future[None] | None = None

    async def sleep_until(self, at_ns: int) -> None:
        """See Waker."""
        if at_ns <= time.monotonic_ns():
            return
        spec = _ITimerSpec(0, 0, *divmod(at_ns, NS_PER_S))
        if self._libc.timerfd_settime(self._fd, _TFD_TIMER_ABSTIME, ctypes.byref(spec), None) != 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime failed")
        self._waiting = self._loop.create_future()
        await self._waiting

    def close(self) -> None:
        """See Waker."""
        self._loop.remove_reader(self._fd)
        os.close(self._fd)

    def _fired(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return  # armed anew since the loop saw it readable
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


class SpinWaker:
    """Any system: sleep to shortly before the instant, then yield to the event loop until it has come."""

    spin_ns = 2 * NS_PER_MS

    async def sleep_until(self, at_ns: int) -> None:
        """See Waker."""
        while (left_ns := at_ns - time.monotonic_ns()) > 0:
            await asyncio.sleep(max(0, left_ns - self.spin_ns) / NS_PER_S)

    def close(self) -> None:
        """See Waker."""
