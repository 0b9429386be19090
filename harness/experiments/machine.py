"""The machine: which device there is, its cores, and keeping the engine and the client on cores of their own."""

import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from harness.assembly.settings import DeviceSettings


@dataclass(frozen=True, slots=True)
class Cores:
    """The engine's core and the others; None = nothing is pinned."""

    engine: int | None
    others: frozenset[int] | None

    def spread(self, processes: int) -> "Cores":
        """For an engine of several processes: each has a core of its own, from `engine` on in order.

        All else gets the cores that are left, or the last process's where none is. Too few cores: nothing is pinned.
        """
        if processes == 1 or self.engine is None or self.others is None:
            return self
        further = {self.engine + number for number in range(1, processes)}
        if not further <= self.others:
            return Cores(None, None)
        return Cores(self.engine, self.others - further or frozenset({max(further)}))


UNPINNED = Cores(None, None)


def resolve_device(device: DeviceSettings) -> DeviceSettings:
    """`kind: auto` becomes cpu or cuda."""
    return replace(device, kind=detected_kind()) if device.kind == "auto" else device


def detected_kind() -> Literal["cpu", "cuda"]:
    """cuda where torch can use one. Torch is only asked on a machine that has the driver's device files."""
    if not any(Path("/dev").glob("nvidia[0-9]*")):
        return "cpu"
    question = "import torch, sys; sys.exit(0 if torch.cuda.is_available() else 1)"
    return "cuda" if subprocess.run([sys.executable, "-c", question], check=False).returncode == 0 else "cpu"


def share_cores(device: DeviceSettings) -> Cores:
    """The engine gets the first core where there are two or more and `pin` is auto."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if device.pin == "off" or len(cores) < 2:
        return UNPINNED
    if device.threads > 1 or device.kind == "cuda":
        return UNPINNED
    return Cores(cores[0], frozenset(cores[1:]))


@contextmanager
def pinned(cores: frozenset[int] | None) -> Iterator[None]:
    """This process runs on these cores inside the block; None changes nothing."""
    if cores is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def cpu_model() -> str:
    """Name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
