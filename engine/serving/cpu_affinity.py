"""Pinning a process to one CPU."""

import os
from collections.abc import Collection

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


def pin_engine(first_cpu: int | None, ranks: int) -> None:
    """Run this process, an engine's rank 0, on its CPU; the other ranks need the next ones. Raises as `require_cpu`."""
    if first_cpu is None:
        return
    for rank in range(1, ranks):  # once this process is pinned, it sees no other CPU
        require_cpu(first_cpu + rank, f"--engine-cpu {first_cpu}, rank {rank}")
    pin_to_cpu(first_cpu, "--engine-cpu")


def available_cpus() -> frozenset[int]:
    """The CPUs this thread may run on, and its children with it; empty where the platform cannot say."""
    return frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset()


def run_on(cpus: Collection[int]) -> None:
    """This process, and what it starts later, may run on these CPUs; nothing changes where there are none."""
    if cpus:
        os.sched_setaffinity(0, cpus)
