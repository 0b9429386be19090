"""Sweeps (`-m`): side by side in one second, failing jobs, interrupts, full disks, kill -9."""

import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hydra.core.global_hydra import GlobalHydra

from harness.experiments.compose import Job, main
from harness.experiments.job_outcomes import JobOutcomes, Outcome, sweep_outcomes
from harness.experiments.simulated_store import POINTS, read_simulated
from tests.end_to_end.command import ROOT, start

SMALL = ("experiment=sim_smoke", "load.rate_scale=1", "workload.window_s=5", "bound=null", "output.workers=1")


@pytest.fixture(name="sweep")
def _sweep(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int]:
    """The command line of a sweep of four jobs, each done by a function."""
    monkeypatch.chdir(tmp_path)

    def run(work: Callable[[Job], int], *typed: str) -> int:
        monkeypatch.setattr("sys.argv", ["run.py", "-m", "experiment=sim_smoke", "load.seed=0,1,2,3", *typed])
        GlobalHydra.instance().clear()
        return main(work)

    return run


def seeds_of(statuses: dict[str, int], seen: list[str]) -> Callable[[Job], int]:
    def work(job: Job) -> int:
        seen.append(job.user["load.seed"])
        return statuses.get(seen[-1], 0)

    return work


def test_c53_a_failing_job_does_not_stop_the_others_and_its_status_is_the_sweeps(sweep: Callable[..., int]) -> None:
    seen: list[str] = []
    assert sweep(seeds_of({"1": 1}, seen)) == 1
    assert seen == ["0", "1", "2", "3"]


def test_c53_with_fail_fast_no_job_begins_after_one_that_failed(
    sweep: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[str] = []
    assert sweep(seeds_of({"1": 1}, seen), "output.fail_fast=true") == 1
    assert seen == ["0", "1"]
    assert capsys.readouterr().err.count("not begun, since a job before it failed") == 2


def test_c55_no_job_begins_after_an_interrupt(sweep: Callable[..., int]) -> None:
    seen: list[str] = []
    assert sweep(seeds_of({"2": 130}, seen)) == 130
    assert seen == ["0", "1", "2"]


def test_c52_every_sweep_has_a_folder_of_its_own(tmp_path: Path) -> None:
    with sweep_outcomes(tmp_path / "sweeps") as one, sweep_outcomes(tmp_path / "sweeps") as two:
        assert one.folder != two.folder
        one.add(Outcome(1, "load.seed=1", 2, "why"))
        one.add(Outcome(0, "load.seed=0", 0))
        assert one.ended() == [Outcome(0, "load.seed=0", 0), Outcome(1, "load.seed=1", 2, "why")]
        assert JobOutcomes(two.folder).ended() == []
    assert not (tmp_path / "sweeps").exists()


@pytest.mark.slow
def test_c52_two_multiruns_in_one_second_both_survive(tmp_path: Path) -> None:
    arguments = ("-m", *SMALL, "system=flowprefill,distserve", "load.seed=0")
    both = [start(tmp_path, *arguments), start(tmp_path, *arguments)]
    ended = [(process.communicate(timeout=300)[1], process.returncode) for process in both]
    assert [status for _, status in ended] == [0, 0], ended
    alone = tmp_path / "alone"
    alone.mkdir()
    last = start(alone, *arguments)
    assert last.wait(300) == 0
    for name in (f"raw/sim_smoke/{POINTS}", "tables/sim_smoke.csv.gz", "tables/sim_smoke_max_goodput.csv"):
        assert (tmp_path / "results" / name).read_bytes() == (alone / "results" / name).read_bytes()


@pytest.mark.slow
def test_c55_ctrl_c_ends_a_sweep_and_keeps_what_ended(tmp_path: Path) -> None:
    arguments = (*SMALL[:1], "system=distserve", "load.seed=range(0,12)", "bound=null", "output.workers=1", "-m")
    process = start(tmp_path, *arguments)
    store = tmp_path / "results" / "raw" / "sim_smoke" / POINTS
    deadline = time.monotonic() + 300
    while not store.is_file() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    err = process.communicate(timeout=300)[1]
    assert process.returncode == 130, err
    kept = read_simulated(store.parent)
    assert 0 < len(kept) < 24
    assert not list((tmp_path / "results").rglob(".*"))


def test_a_full_disk_is_told_and_the_next_run_writes_the_rest(tmp_path: Path) -> None:
    """A limit of 300 bytes for any file stands for a disk that fills up after the first look at it.

    With -B, else Python would keep truncated bytecode.
    """
    code = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "from harness.experiments import room; room.PROBE_BYTES = 0;"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, (300, {resource.RLIM_INFINITY}));"
        "from harness.experiments.run import main; sys.exit(main())"
    )
    arguments = (*SMALL, "system=distserve", "load.seed=0")
    done = subprocess.run(
        [sys.executable, "-B", "-c", code, *arguments], cwd=tmp_path, env={"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "could not be kept: File too large: " in done.stderr
    assert "once that is mended, the same command goes on from here" in done.stderr
    assert "Traceback" not in done.stderr
    assert not [path for path in (tmp_path / "results").rglob("*") if path.is_file()]
    again = start(tmp_path, *arguments)
    err = again.communicate(timeout=300)[1]
    assert again.returncode == 0, err
    assert (tmp_path / "results" / "tables" / "sim_smoke.csv.gz").is_file()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_c56_a_sweep_killed_at_random_moments_is_as_undisturbed_after_a_rerun() -> None:
    """Three kills; `python -m bench.kill_and_rerun` does more, of workers, clients and servers too."""
    command = [sys.executable, "-m", "bench.kill_and_rerun", "--simulated=3", "--side-by-side=0", "--measured=0"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1700, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("as undisturbed") == 3
