"""Child processes: their log, their death, their children."""

import os
import sys
import time
from pathlib import Path

import pytest

from baselines.servers.process import ServerProcess, ServerProcessError


def python(code: str, tmp_path: Path) -> ServerProcess:
    return ServerProcess([sys.executable, "-u", "-c", code], tmp_path / "server.log")


def wait_for(path: Path, text: str) -> None:
    deadline = time.monotonic() + 120
    while text not in path.read_text():
        assert time.monotonic() < deadline, path.read_text()
        time.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_server_that_dies_tells_its_last_words(tmp_path: Path) -> None:
    with python("import sys; print('loading'); print('no such model'); sys.exit(3)", tmp_path) as server:
        server._child.wait(120)
        with pytest.raises(ServerProcessError, match=r"exited with code 3; its last words: loading \| no such model"):
            server.require_alive()


def test_an_earlier_log_in_the_same_file_is_kept_and_not_quoted(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text("from before\n")
    with python("print('now')", tmp_path) as server:
        server._child.wait(120)
        assert server.last_words() == "now"
    assert (tmp_path / "server.log").read_text() == "from before\nnow\n"


def test_stopping_ends_a_server_that_ignores_the_signal_and_its_children(tmp_path: Path) -> None:
    code = (
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print('child', child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    server = python(code, tmp_path)
    wait_for(tmp_path / "server.log", "child ")
    child = int((tmp_path / "server.log").read_text().split()[1])
    server.stop(grace_s=0.2)
    deadline = time.monotonic() + 120
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not alive(child)
    assert server.exit_code() is not None
    server.stop()


def test_a_server_is_in_a_process_group_of_its_own(tmp_path: Path) -> None:
    """So that a terminal's Ctrl-C reaches the harness alone, which then stops the server in order."""
    with python("import time; time.sleep(600)", tmp_path) as server:
        assert os.getpgid(server.pid) == server.pid != os.getpgid(0)


def test_a_command_that_does_not_exist_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ServerProcessError, match="cannot start no-such-command"):
        ServerProcess(["no-such-command"], tmp_path / "server.log")
