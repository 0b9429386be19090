"""Sweeps of simulated points under the committed launchers give the bytes of a sweep run one job after another.

They run where `make env-sweeps` has been run, or the launchers are installed beside the tests.
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.experiments.simulated_store import POINTS

ROOT = Path(__file__).resolve().parents[2]
SWEEP = (
    "-m", "experiment=sim_smoke", "system=flowprefill,distserve", "load.seed=0,1", "load.rate_scale=1",
    "workload.window_s=5", "bound=null", "output.workers=1",
)  # fmt: skip
RAY_TRIES = 3
"""Ray gives its processes 30 s to start, and they each other 15 s: constants of its code, which no setting moves."""
NAMES = (f"raw/sim_smoke/{POINTS}", "tables/sim_smoke.csv.gz", "tables/sim_smoke_max_goodput.csv")


def python_with(package: str) -> str:
    """An interpreter that has the package; skips where there is none."""
    if importlib.util.find_spec(package) is not None:
        return sys.executable
    own = ROOT / ".venv-sweeps"
    if any(own.glob(f"lib/python3*/site-packages/{package}")):
        return str(own / "bin" / "python")
    pytest.skip(f"{package} is not installed: make env-sweeps")


def run(python: str, cwd: Path, *arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [python, "-m", "harness.experiments.run", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module", name="sequential")
def _sequential(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    cwd = tmp_path_factory.mktemp("sequential")
    status, told = run(sys.executable, cwd, *SWEEP)
    assert status == 0, told
    assert not (cwd / "outputs" / "sweeps").exists()
    return {name: (cwd / "results" / name).read_bytes() for name in NAMES}


@pytest.mark.parametrize(
    ("launcher", "package"),
    [
        ("slurm_dry_run", "submitit"),
        pytest.param("ray_local", "ray", marks=[pytest.mark.slow, pytest.mark.timeout(2000)]),
    ],
)
def test_a_sweep_under_a_launcher_gives_the_bytes_of_a_sequential_one(
    sequential: dict[str, bytes], tmp_path: Path, launcher: str, package: str
) -> None:
    for _ in range(RAY_TRIES if package == "ray" else 1):
        status, told = run(python_with(package), tmp_path, *SWEEP, f"hydra/launcher={launcher}")
        late = "node timed out during startup" in told
        if not late:
            break
    if late:
        pytest.skip(f"Ray did not start in time on this busy machine, {RAY_TRIES} times")
    assert status == 0, told
    assert {name: (tmp_path / "results" / name).read_bytes() for name in NAMES} == sequential
    assert not (tmp_path / "outputs" / "sweeps").exists()


def test_c53_a_launcher_loses_no_exit_status_and_no_reason(tmp_path: Path) -> None:
    mistaken = ["system=flowprefill", "device.simulation.switch_s=0,99", "load.seed=0", "hydra/launcher=slurm_dry_run"]
    status, told = run(python_with("submitit"), tmp_path, *SWEEP[:2], *mistaken, *SWEEP[4:])
    assert status == 2, told
    assert "error: job 1 (" in told
    assert "device.simulation.switch_s must be at most 10, got 99" in told
    assert (tmp_path / "results" / NAMES[0]).is_file()


def test_measured_points_are_refused_under_a_launcher(tmp_path: Path) -> None:
    profile = ROOT / "profiles" / "amd_epyc_1_threads_float32" / "cpu_demo.json"
    measured = ("-m", "experiment=smoke", "device=cpu", "load.seed=0", f"device.profile={profile}")
    status, told = run(python_with("submitit"), tmp_path, *measured, "hydra/launcher=slurm_dry_run")
    assert status == 2, told
    assert "is measured, and must run alone: use hydra/launcher=basic" in told
    assert not (tmp_path / "results").exists()
