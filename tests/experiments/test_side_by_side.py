"""Jobs in processes of their own. Functions of this module are found again by the processes, which import it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from harness.experiments.side_by_side import Died, side_by_side


def square_or_die(number: int) -> int:
    if number == 3:
        os._exit(1)  # as if killed
    return number * number


def test_a_process_that_dies_costs_its_own_job_only() -> None:
    found = dict(side_by_side(square_or_die, [1, 2, 3, 4], 2, lambda: False))
    assert isinstance(found.pop(3), Died)
    assert found == {1: 1, 2: 4, 4: 16}


def test_once_stopped_nothing_begins() -> None:
    assert list(side_by_side(square_or_die, [1, 2], 2, lambda: True)) == []


def hears_interrupts(_: int) -> bool:
    return signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_its_processes_never_hear_ctrl_c_and_their_parent_still_does() -> None:
    assert dict(side_by_side(hears_interrupts, [1, 2], 2, lambda: False)) == {1: False, 2: False}
    assert hears_interrupts(0)


def tell_who_and_stay(folder: str) -> None:
    (Path(folder) / str(os.getpid())).touch()
    time.sleep(600)


def test_its_processes_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    names = "tests.experiments.test_side_by_side import side_by_side, tell_who_and_stay"
    code = f"from {names}\nlist(side_by_side(tell_who_and_stay, [{str(tmp_path)!r}] * 2, 2, bool))"
    parent = subprocess.Popen([sys.executable, "-c", code])
    deadline = time.monotonic() + 300
    while len(children := [int(path.name) for path in tmp_path.iterdir()]) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    parent.kill()
    parent.wait()
    assert len(children) == 2
    while (left := [pid for pid in children if is_running(pid)]) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not left


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
