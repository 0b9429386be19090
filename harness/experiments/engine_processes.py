"""The processes that compute a point of our engine, as they run: ranks of a split model, instances of a proxy."""

import os
from typing import Any

from baselines.servers.process import ServerProcess
from baselines.servers.process_table import title

MODULES = ("engine.serving.instance", "engine.torch_backend.rank_process")


def engine_processes_of(server: ServerProcess) -> tuple[dict[str, Any], ...]:
    """Name (`engine`, `rank-1`, `prefill-0`) and CPUs of each, in the order they were started; for a provenance."""
    computing = [each for each in server.members() if any(f"-m {module} " in title(each.pid) for module in MODULES)]
    computing.sort(key=lambda each: (each.started_ticks, each.pid))
    return tuple({"process": _name(title(each.pid)), "cpus": _cpus(each.pid)} for each in computing)


def _name(command: str) -> str:
    words = command.split()
    return words[words.index("--name") + 1] if "--name" in words else "engine"


def _cpus(pid: int) -> list[int]:
    try:
        return sorted(os.sched_getaffinity(pid))
    except OSError:  # it has ended meanwhile
        return []
