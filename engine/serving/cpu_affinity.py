"""Pinning a process to one CPU."""

import os

from engine.serving.settings import SettingsError


def require_cpu(cpu: int | None, setting: str) -> None:
    """Raise SettingsError where this CPU is not available or the platform cannot pin. None: nothing to do."""
    if cpu is None:
        return
    if not hasattr(os, "sched_setaffinity"):
        raise SettingsError(f"{setting}: this platform cannot pin a process to a CPU")
    available = sorted(os.sched_getaffinity(0))
    if cpu not in available:
        raise SettingsError(f"{setting}: CPU {cpu} is not available, only {', '.join(map(str, available))}")


def pin_to_cpu(cpu: int | None, setting: str) -> None:
    """Run this process, and threads and children it starts later, on one CPU only. Raises as `require_cpu`."""
    require_cpu(cpu, setting)
    if cpu is not None:
        os.sched_setaffinity(0, {cpu})
