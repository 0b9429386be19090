"""TCP ports: one that is free, and who listens on one that is not."""

import errno
import socket
from pathlib import Path

from baselines.servers.process_table import PROC, title

LISTENING = "0A"


def free_port(host: str = "127.0.0.1") -> int:
    """A TCP port nobody listens on now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def port_taken(port: int, host: str = "127.0.0.1") -> bool:
    """Whether somebody listens on it: asked by binding, as a server would."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return True
            raise
    return False


def port_owner(port: int) -> str:
    """Who listens on a port, as "pid 12 (its command)"; "a process that cannot be seen" where /proc does not tell."""
    inodes = _listening_inodes(port)
    if inodes:
        for entry in PROC.iterdir():
            if entry.name.isdigit() and _holds_socket(entry, inodes):
                return f"pid {entry.name} ({title(int(entry.name))[:120] or 'no command line'})"
    return "a process that cannot be seen"


def _listening_inodes(port: int) -> set[str]:
    found = set()
    for table in ("tcp", "tcp6"):
        try:
            rows = (PROC / "net" / table).read_text().splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            fields = row.split()
            if fields[3] == LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                found.add(fields[9])
    return found


def _holds_socket(entry: Path, inodes: set[str]) -> bool:
    wanted = {f"socket:[{inode}]" for inode in inodes}
    try:
        return any(str(link.readlink()) in wanted for link in (entry / "fd").iterdir())
    except OSError:
        return False
