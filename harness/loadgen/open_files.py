"""Enough open files for the run, or a refusal before it starts."""

import resource
from pathlib import Path

from harness.loadgen.errors import OpenFilesLimitError

PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
SPARE_FILES = 64
"""Kept for what the process opens besides: logs, results, the resolver, lazily imported modules."""


def ensure_open_files(connections: int) -> int:
    """Raise the soft limit if needed; returns the limit in force.

    Raises OpenFilesLimitError with the number needed when the hard limit, or the number of local ports, is below it.
    """
    taken = open_now() + SPARE_FILES
    needed = connections + taken
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = connections if hard == resource.RLIM_INFINITY else max(0, hard - taken)
    ports = local_ports()
    if min(files, ports) < connections:
        lacking = (
            f"needs an open-files limit of {needed}, but the hard limit is {hard} (ulimit -Hn)"
            if files < ports
            else f"this machine has {ports} local ports for them ({PORT_RANGE})"
        )
        raise OpenFilesLimitError(
            f"the run can hold {connections} connections at once and {lacking}", min(files, ports)
        )
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft


def local_ports() -> int:
    """Connections to one address that this machine can have open; all there can be where the system does not say."""
    try:
        first, last = PORT_RANGE.read_text(encoding="ascii").split()
        return int(last) - int(first) + 1
    except (OSError, ValueError):
        return 65_535


def open_now() -> int:
    """Files this process holds open; a guess of the usual few where /proc is missing."""
    listing = Path("/proc/self/fd")
    return len(list(listing.iterdir())) if listing.is_dir() else 32
