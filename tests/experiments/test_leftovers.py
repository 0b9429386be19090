"""What killed runs leave goes with the next run, and nothing of a run at work goes."""

import errno
import fcntl
from pathlib import Path
from typing import Any

import pytest

from harness.experiments.leftovers import remove_leftovers, results_in_use
from harness.experiments.locks import locked
from harness.measurement.store import MANIFEST, PointState, point_state, write_point
from tests.experiments.points import measured, prepared, profile_text


@pytest.fixture(name="results")
def _results(tmp_path: Path) -> Path:
    (tmp_path / "profile.json").write_text(profile_text())
    (ready,) = prepared(str(tmp_path / "profile.json"))
    experiment = tmp_path / "raw" / "smoke"
    write_point(experiment / "a-r0.5-s0-1", measured(ready))
    (experiment / ".simulated.jsonl.gz.x1.partial").write_text("{")
    (experiment / ".b-r1-s0-2.lock").write_text("")
    (experiment / ".b-r1-s0-2.abc.partial").mkdir()
    (experiment / ".b-r1-s0-2.abc.partial" / MANIFEST).write_text("{")
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / ".smoke.csv.x2.partial").write_text("")
    (tmp_path / "tables" / "smoke.csv").write_text("")
    return tmp_path


def test_c56_half_files_and_locks_of_killed_runs_go_with_the_next_one(results: Path) -> None:
    with results_in_use(results):
        pass
    assert sorted(path.name for path in (results / "raw" / "smoke").iterdir()) == ["a-r0.5-s0-1"]
    assert [path.name for path in (results / "tables").iterdir()] == ["smoke.csv"]


def test_c56_a_point_moved_aside_for_one_that_never_came_is_put_back(results: Path) -> None:
    point = results / "raw" / "smoke" / "a-r0.5-s0-1"
    aside = point.with_name(f".{point.name}.123.replaced")
    point.rename(aside)
    remove_leftovers(results)
    assert point_state(point) is PointState.FINISHED
    assert not aside.exists()


def test_c52_nothing_of_a_run_at_work_goes(results: Path) -> None:
    half = results / "raw" / "smoke" / ".b-r1-s0-2.abc.partial"
    with results_in_use(results):
        half.mkdir()
        with results_in_use(results):
            assert half.is_dir()
    with results_in_use(results):
        assert not half.exists()


def test_a_folder_that_stays_empty_goes_again(tmp_path: Path) -> None:
    with results_in_use(tmp_path / "results"):
        assert (tmp_path / "results" / "raw").is_dir()
    assert not (tmp_path / "results").exists()


def test_a_file_is_locked_where_the_file_system_locks_no_folders(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real = fcntl.flock

    def as_nfs(descriptor: int, operation: int) -> Any:
        if Path(f"/proc/self/fd/{descriptor}").resolve().is_dir():
            raise OSError(errno.EBADF, "Bad file descriptor")
        return real(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", as_nfs)
    with locked(tmp_path):
        assert (tmp_path / ".lock").is_file()
        with (tmp_path / ".lock").open() as other, pytest.raises(BlockingIOError):
            real(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
