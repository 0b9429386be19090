"""Pinning a process to one CPU."""

import os

from engine.serving.settings import SettingsError


def pin_to_cpu(cpu: int | None, setting: str) -> None:
    """Run this process, and threads it starts later, on one CPU only. None: nothing to do.

    Raises SettingsError where the CPU is not available or the platform cannot pin.
    """
    if cpu is None:
        return
    if not hasattr(os, "sched_setaffinity"):
        raise SettingsError(f"{setting}: this platform cannot pin a process to a CPU")
    available = sorted(os.sched_getaffinity(0))
    if cpu not in available:
        raise SettingsError(f"{setting}: CPU {cpu} is not available, only {', '.join(map(str, available))}")
    os.sched_setaffinity(0, {cpu})
