"""The real vLLM and SGLang, where their environments exist: an orderly end, their flags as committed. Minutes.

python -m pytest -m servers
"""

import os
import signal
from pathlib import Path

import pytest

from baselines.servers.known_flags import ask, known_flags
from baselines.servers.launch import ServerName
from baselines.servers.process import ServerProcessError
from baselines.servers.process_table import still_alive, title
from engine.torch_backend.checkpoint_folder import write_checkpoint
from tests.baselines.real_server import launch_of, present, running

pytestmark = [pytest.mark.servers, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint") / "model"
    write_checkpoint("cpu_demo", folder)
    return folder


@pytest.mark.parametrize("server", ["vllm", "sglang"])
def test_three_starts_and_stops_leave_nothing(server: ServerName, checkpoint: Path, tmp_path: Path) -> None:
    """The third server loses the process that runs its model, as when memory runs out."""
    launch = launch_of(server, checkpoint)
    for number in range(3):
        with running(server, launch, tmp_path / "log") as (process, _):
            members = process.members()
            models = [member.pid for member in members if launch.model_process in title(member.pid)]
            assert len(models) == 1, [title(member.pid) for member in members]
            if number == 2:
                os.kill(models[0], signal.SIGKILL)
        assert still_alive(members) == ()


@pytest.mark.parametrize("server", ["vllm", "sglang"])
def test_a_model_that_is_not_there_is_told_with_the_last_words(server: ServerName, tmp_path: Path) -> None:
    launch = launch_of(server, tmp_path / "nowhere")
    with (
        pytest.raises(ServerProcessError, match="exited with code"),
        running(server, launch, tmp_path / "log"),
    ):
        pass


@pytest.mark.parametrize("server", ["vllm", "sglang"])
def test_the_committed_flags_are_the_servers_own(server: ServerName) -> None:
    found = present(server)
    assert known_flags(server, found.version, "no-such-python") == ask(server, found.python)
