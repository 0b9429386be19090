"""What a number depends on besides the code: processor, clocks, governor, memory, accelerators and their driver."""

import os
import platform
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.experiments.machine import cpu_model

GPU_FIELDS = (
    "name", "driver_version", "memory.total", "clocks.sm", "clocks.max.sm", "clocks.mem", "power.limit",
    "persistence_mode", "temperature.gpu",
)  # fmt: skip
"""As nvidia-smi names them; clocks in MHz, power in W, memory in MiB."""
CPU_CLOCKS = Path("/sys/devices/system/cpu/cpu0/cpufreq")
NVIDIA_DRIVER = Path("/proc/driver/nvidia")
ASK_WITHIN_S = 20.0


def machine_facts(clocks: Path = CPU_CLOCKS, driver: Path = NVIDIA_DRIVER) -> dict[str, Any]:
    """For a provenance. What this machine does not tell is None; without an NVIDIA driver there are no `gpus`."""
    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "memory_bytes": _or_none(lambda: os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")),
        "governor": _or_none(lambda: (clocks / "scaling_governor").read_text().strip()),
        "clock_mhz": _or_none(_clock_mhz),
        "clock_max_mhz": _or_none(lambda: int((clocks / "cpuinfo_max_freq").read_text()) / 1000),
        "gpus": gpus() if driver.exists() else [],
    }


def gpus(command: str = "nvidia-smi") -> list[dict[str, str]] | None:
    """Each accelerator's facts now; None where the driver's tool does not answer."""
    query = [command, f"--query-gpu={','.join(GPU_FIELDS)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, check=True, capture_output=True, text=True, timeout=ASK_WITHIN_S)
    except (OSError, subprocess.SubprocessError):
        return None
    rows = [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines() if line.strip()]
    return [dict(zip(GPU_FIELDS, row, strict=True)) for row in rows if len(row) == len(GPU_FIELDS)]


def _clock_mhz() -> float:
    """The fastest core's clock now."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return max(float(line.split(":")[1]) for line in lines if line.startswith("cpu MHz"))


def _or_none(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except (OSError, ValueError):
        return None
