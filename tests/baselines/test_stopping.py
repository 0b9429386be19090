"""Nothing of a stopped server is left: no process, port, segment or temporary file. Who holds a port is told."""

import os
import socket
import sys
import time
import uuid
from pathlib import Path

import pytest

from baselines.servers.ports import free_port, port_owner, port_taken
from baselines.servers.process import ServerProcess, ServerProcessError
from baselines.servers.process_table import live_processes, still_alive

UNRULY = Path(__file__).with_name("unruly_server.py")
SHM = Path("/dev/shm")

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's /proc")


def started(tmp_path: Path, segment: str) -> ServerProcess:
    port = free_port()
    server = ServerProcess(
        [sys.executable, "-S", str(UNRULY), str(port), segment], tmp_path / "log", port=port, scratch=True
    )
    deadline = time.monotonic() + 120
    while "up" not in (tmp_path / "log").read_text()[server.log_start :]:
        assert time.monotonic() < deadline, (tmp_path / "log").read_text()
        time.sleep(0.005)
    return server


@pytest.mark.slow
@pytest.mark.skipif(not SHM.is_dir(), reason="needs /dev/shm")
def test_twenty_starts_and_stops_leave_nothing(tmp_path: Path) -> None:
    for _ in range(20):
        segment = f"flowprefill-test-{uuid.uuid4().hex}"
        server = started(tmp_path, segment)
        members = server.members()
        assert len(members) == 3
        assert len({member.session for member in members}) == 2, "one child has left the session"
        assert (SHM / segment).exists()
        assert (SHM / f"sem.{segment}-semaphore").exists()
        assert port_taken(server.port or 0)
        server.stop(grace_s=0.05)
        assert server.left_behind() == ()
        assert still_alive(members) == ()
        assert not port_taken(server.port or 0)
        assert list(SHM.glob(f"*{segment}*")) == []
        assert server._scratch is not None
        assert not server._scratch.exists()


def test_an_orphan_is_found_after_its_server_died(tmp_path: Path) -> None:
    server = started(tmp_path, f"flowprefill-test-{uuid.uuid4().hex}")
    os.kill(server.pid, 9)
    server._child.wait(120)
    assert len(server.members()) == 2
    assert any("lives on" in sentence for sentence in server.left_behind())
    server.stop()
    assert server.left_behind() == ()


def test_a_taken_port_is_refused_with_its_owner(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert f"pid {os.getpid()} (" in port_owner(port)
        with pytest.raises(ServerProcessError, match=f"port {port} is taken by pid {os.getpid()} "):
            ServerProcess([sys.executable, "-c", ""], tmp_path / "log", port=port)
    assert not (tmp_path / "log").exists()


def test_a_free_port_can_be_listened_on() -> None:
    with socket.create_server(("127.0.0.1", free_port())):
        pass


def test_a_new_process_under_an_old_pid_is_another_one() -> None:
    me = next(process for process in live_processes() if process.pid == os.getpid())
    older = type(me)(me.pid, me.started_ticks - 1, me.parent, me.session, me.name)
    assert still_alive([me]) == (me,)
    assert still_alive([older]) == ()
