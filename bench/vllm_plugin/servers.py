"""The vLLM servers of the bench: stock, and the plugin at each granularity, all of one checkpoint."""

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from baselines.servers import vllm
from baselines.servers.environments import find_environment
from baselines.servers.launch import LaunchSettings
from baselines.servers.ports import free_port
from bench.prefill_vs_servers import Plan, running
from harness.experiments.rival_server import place

STOCK, NONE, CHUNK, LAYER, HALF_LAYER, OPERATOR = "stock", "none", "chunk", "layer", "half_layer", "operator"
"""stock: vLLM as it is installed, without plugins, the model in a process of its own. none: the plugin's executor and
stock order, the model in the scheduler's process. The others: the plugin's granularities."""
NAMES = (STOCK, NONE, CHUNK, LAYER, HALF_LAYER, OPERATOR)
LOG = "nestings.jsonl"
EXECUTOR = "vllm_flowprefill.executor.InlineExecutor"


@dataclass(frozen=True)
class Server:
    """One that runs. log: its nestings, one JSON line each."""

    name: str
    url: str
    model: str
    log: Path

    def nestings(self, after: int = 0) -> list[dict[str, Any]]:
        """Those there are, but for the first `after`; none of a server without preemption."""
        if not self.log.is_file():
            return []
        return [json.loads(line) for line in self.log.read_text(encoding="utf-8").splitlines()[after:]]


def plugin_flags(granularity: str, log: Path, executor: str = EXECUTOR, **more: Any) -> tuple[str, ...]:
    """What vLLM is told so that the plugin serves. more: further settings of the plugin."""
    options = {"flowprefill": {"granularity": granularity, "nesting_log": str(log), **more}}
    return (
        "--scheduler-cls", "vllm_flowprefill.scheduler.DeadlineScheduler",
        "--distributed-executor-backend", executor,
        "--no-async-scheduling", "--additional-config", json.dumps(options),
    )  # fmt: skip


@contextlib.contextmanager
def server(
    name: str,
    plan: Plan,
    chunk_tokens: int,
    kv_tokens: int,
    flags: Sequence[str] = (),
    env: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Server]:
    """One vLLM on the plan's cores, stopped at the end. env: variables beside those of its launch."""
    environment = find_environment("vllm", Path.cwd(), "cpu")
    settings = LaunchSettings(
        model=str(plan.folder), served_model=str(plan.folder), device="cpu", dtype="float32", policy="fcfs",
        max_context_tokens=plan.context_tokens, kv_tokens=kv_tokens, chunk_tokens=chunk_tokens, threads=plan.threads,
        extra_flags=tuple(flags),
    )  # fmt: skip
    launch, port = vllm.launch(settings), free_port()
    with running(launch.argv(environment.python, port), {**launch.env, **env}, port, plan, name) as process:
        place(process, launch, plan.cores)
        yield Server(name, f"http://127.0.0.1:{port}", str(plan.folder), plan.logs / name / LOG)


@contextlib.contextmanager
def all_servers(plan: Plan, chunk_step_tokens: int, names: Sequence[str] = NAMES) -> Iterator[dict[str, Server]]:
    """Those of some names, alive side by side; only one is asked at a time."""
    with contextlib.ExitStack() as held:
        servers = {}
        for name in names:
            log = plan.logs / name / LOG
            log.parent.mkdir()
            flags = () if name == STOCK else plugin_flags(name, log)
            step = chunk_step_tokens if name == CHUNK else plan.chunk_tokens
            servers[name] = held.enter_context(server(name, plan, step, 2 * plan.context_tokens, flags))
        yield servers
