"""The command as a user types it, in a process of its own, on the smallest model."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LONG_S = 550
"""No command of a test takes so long, however busy the machine."""
TINY = ("model=cpu_tiny", "device=cpu", "device.pin=off", "output.share_machine=true")


def start(cwd: Path, *arguments: str, module: str = "harness.experiments.run") -> "subprocess.Popen[str]":
    """Start the command in `cwd`, where it writes its outputs."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(cwd: Path, *arguments: str, module: str = "harness.experiments.run") -> tuple[int, str, str]:
    """Exit status, standard output and standard error."""
    process = start(cwd, *arguments, module=module)
    out, err = process.communicate(timeout=LONG_S)
    return process.returncode, out, err
