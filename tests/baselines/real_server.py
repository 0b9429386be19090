"""Starting the real vLLM or SGLang for a test, where its environment exists."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from baselines.servers import sglang, vllm
from baselines.servers.environments import Environment, NoEnvironmentError, environment_folder, find_environment
from baselines.servers.launch import Launch, LaunchSettings, ServerName
from baselines.servers.ports import free_port
from baselines.servers.process import ServerProcess
from harness.loadgen.settings import SLOStyle, Target
from harness.loadgen.warmup import wait_until_ready

ROOT = Path(__file__).resolve().parents[2]
LAUNCHES = {"vllm": vllm.launch, "sglang": sglang.launch}
STYLES = {"vllm": SLOStyle.PRIORITY_LOW_FIRST, "sglang": SLOStyle.PRIORITY_HIGH_FIRST}
START_S = 900.0
SERVED = "demo"


def present(server: ServerName) -> Environment:
    """The server's environment; skips the test without one."""
    for device in ("cuda", "cpu"):
        try:
            return find_environment(server, ROOT, device)
        except NoEnvironmentError:
            continue
    pytest.skip(f"{environment_folder(server)} is not there: make env-{server}")


def launch_of(server: ServerName, checkpoint: Path, **changes: Any) -> Launch:
    """Priorities, 4096 tokens of context, chunks of 512."""
    on_gpu = present(server).variant == "cuda"
    settings = {
        "model": str(checkpoint), "served_model": SERVED, "device": "cuda" if on_gpu else "cpu", "dtype": "float32",
        "policy": "priority", "max_context_tokens": 4096, "kv_tokens": 8192, "chunk_tokens": 512,
    }  # fmt: skip
    return LAUNCHES[server](LaunchSettings(**{**settings, **changes}))


@contextmanager
def running(server: ServerName, launch: Launch, log: Path) -> Iterator[tuple[ServerProcess, Target]]:
    """A server that has given a token; stopped at the end, nothing of it left."""
    port = free_port()
    process = ServerProcess(launch.argv(present(server).python, port), log, launch.env, port=port, scratch=True)
    try:
        target = Target(f"http://127.0.0.1:{port}", SERVED, slo_style=STYLES[server])
        asyncio.run(_ready(process, target))
        yield process, target
    finally:
        process.stop()
    assert process.left_behind() == ()


async def _ready(process: ServerProcess, target: Target) -> None:
    waiting = asyncio.ensure_future(wait_until_ready(target, START_S, prompt=range(16, 32)))
    try:
        while not waiting.done():
            await asyncio.wait([waiting], timeout=1.0)
            process.require_alive()
        waiting.result()
    finally:
        waiting.cancel()
