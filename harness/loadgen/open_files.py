"""Enough open files for the run, or a refusal before it starts."""

import resource
from pathlib import Path

from harness.loadgen.errors import OpenFilesLimitError

SPARE_FILES = 64
"""Kept for what the process opens besides: logs, results, the resolver, lazily imported modules."""


def ensure_open_files(connections: int) -> int:
    """Raise the soft limit if needed; returns the limit in force.

    Raises OpenFilesLimitError with the number needed when the hard limit is below it.
    """
    needed = connections + open_now() + SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return soft
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise OpenFilesLimitError(
            f"the run can hold {connections} connections at once and needs an open-files limit of {needed}, "
            f"but the hard limit is {hard}: raise it (ulimit -Hn {needed}), or send at a lower rate"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    return needed


def open_now() -> int:
    """Files this process holds open; a guess of the usual few where /proc is missing."""
    listing = Path("/proc/self/fd")
    return len(list(listing.iterdir())) if listing.is_dir() else 32
