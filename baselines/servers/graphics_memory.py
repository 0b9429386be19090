"""Which processes hold memory of an NVIDIA GPU, as its driver tells."""

import shutil
import subprocess

QUERY = ("--query-compute-apps=pid", "--format=csv,noheader")


def holders_of_graphics_memory() -> frozenset[int]:
    """Process ids; none where there is no NVIDIA driver."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return frozenset()
    done = subprocess.run([program, *QUERY], check=False, capture_output=True, text=True)
    return frozenset(int(line) for line in done.stdout.split() if line.isdigit())
