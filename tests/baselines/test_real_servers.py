"""The real vLLM and SGLang, where their environments exist: a token, an orderly end, their flags as committed. Minutes.

python -m pytest -m servers
"""

import asyncio
from pathlib import Path

import pytest

from baselines.servers import sglang, vllm
from baselines.servers.environments import Environment, NoEnvironmentError, environment_folder, find_environment
from baselines.servers.known_flags import ask, known_flags
from baselines.servers.launch import LaunchSettings, ServerName
from baselines.servers.ports import free_port
from baselines.servers.process import ServerProcess
from baselines.servers.process_table import title
from engine.torch_backend.checkpoint_folder import write_checkpoint
from harness.loadgen.settings import SLOStyle, Target
from harness.loadgen.warmup import wait_until_ready

ROOT = Path(__file__).resolve().parents[2]
LAUNCHES = {"vllm": vllm.launch, "sglang": sglang.launch}
STYLES = {"vllm": SLOStyle.PRIORITY_LOW_FIRST, "sglang": SLOStyle.PRIORITY_HIGH_FIRST}
START_S = 900.0

pytestmark = [pytest.mark.servers, pytest.mark.timeout(3600)]


def present(server: ServerName) -> Environment:
    for device in ("cuda", "cpu"):
        try:
            return find_environment(server, ROOT, device)
        except NoEnvironmentError:
            continue
    pytest.skip(f"{environment_folder(server)} is not there: make env-{server}")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint") / "model"
    write_checkpoint("cpu_demo", folder)
    return folder


@pytest.mark.parametrize("server", ["vllm", "sglang"])
def test_three_starts_and_stops_leave_nothing(server: ServerName, checkpoint: Path, tmp_path: Path) -> None:
    found = present(server)
    settings = LaunchSettings(
        model=str(checkpoint), served_model="demo", device="cuda" if found.variant == "cuda" else "cpu",
        dtype="float32", policy="priority", max_context_tokens=4096, kv_tokens=8192, chunk_tokens=512,
    )  # fmt: skip
    launch = LAUNCHES[server](settings)
    for _ in range(3):
        port = free_port()
        process = ServerProcess(launch.argv(found.python, port), tmp_path / "log", launch.env, port=port, scratch=True)
        try:
            target = Target(f"http://127.0.0.1:{port}", "demo", slo_style=STYLES[server])
            asyncio.run(wait_until_ready(target, START_S, prompt=range(16, 32)))
            titles = [title(member.pid) for member in process.members()]
            assert sum(launch.model_process in text for text in titles) == 1, titles
        finally:
            process.stop()
        assert process.left_behind() == ()


@pytest.mark.parametrize("server", ["vllm", "sglang"])
def test_the_committed_flags_are_the_servers_own(server: ServerName) -> None:
    found = present(server)
    assert known_flags(server, found.version, "no-such-python") == ask(server, found.python)
