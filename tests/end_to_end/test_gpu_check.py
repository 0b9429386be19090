"""The check of a GPU, at tiny shapes on a CPU: every part, in a process of its own, with real servers."""

import csv
import json
import os
import subprocess
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from harness.experiments.profile_step import read_profile
from tests.end_to_end.command import ROOT, start

PARTS = [
    "parity", "waiting", "pausing", "timings", "checks", "memory", "granularity", "launch bounds", "transformers",
    "goodput",
]  # fmt: skip

BARE_MACHINE = ("torch", "transformers", "aiohttp", "pandas", "seaborn")
AS_ON_A_BARE_MACHINE = """
import pathlib, socket
from importlib.machinery import PathFinder

found = PathFinder.find_spec
PathFinder.find_spec = lambda name, *rest: None if name.partition(".")[0] in {absent} else found(name, *rest)
connect = socket.socket.connect

def connect_nearby(self, address):
    if self.family != socket.AF_UNIX and address[0] not in ("127.0.0.1", "::1"):
        pathlib.Path({log!r}).write_text(str(address))
        raise OSError(101, "no network")
    return connect(self, address)

socket.socket.connect = connect_nearby
"""
"""Python reads a file of this name at its start: no process of the check finds what a bare machine lacks."""


def not_on_a_bare_machine() -> set[str]:
    """Modules of packages that are installed here and that none of its packages brings along."""
    there: set[str] = set()
    left = list(BARE_MACHINE)
    while left:
        name = canonicalize_name(left.pop())
        if name not in there:
            there.add(name)
            with suppress(PackageNotFoundError):  # wanted on other systems only
                needed = map(Requirement, distribution(name).requires or [])
                left += [one.name for one in needed if one.marker is None or one.marker.evaluate({"extra": ""})]
    owners = packages_distributions().items()
    return {module for module, names in owners if not {canonicalize_name(name) for name in names} & there}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_part_runs_on_a_bare_machine_and_nothing_is_missed(tmp_path: Path) -> None:
    (tmp_path / "bare").mkdir()
    absent, network = not_on_a_bare_machine(), tmp_path / "network"
    assert {"hydra", "scipy", "prometheus_client", "pytest"} <= absent
    (tmp_path / "bare" / "sitecustomize.py").write_text(AS_ON_A_BARE_MACHINE.format(absent=absent, log=str(network)))
    process = subprocess.run(
        [sys.executable, "-m", "bench.gpu_check", "--tiny", "--out", "out", "--limit-s", "1600"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path / "bare"), str(ROOT)])},
        capture_output=True,
        text=True,
        timeout=1700,
        check=False,
    )
    shown = process.stdout
    assert process.returncode == 0, shown + process.stderr
    assert not network.exists(), network.read_text()
    content = json.loads((tmp_path / "out" / "results.json").read_text())
    assert list(content["seconds"]) == PARTS
    assert content["missed"] == []
    assert list(dict.fromkeys(line["part"] for line in content["lines"])) == PARTS
    assert "FAIL" not in shown
    profile = read_profile(next((tmp_path / "out" / "profiles").glob("*/cpu_tiny.json")))
    assert profile.seconds_of()(64) > 0
    with (tmp_path / "out" / "goodput.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["series"] for row in rows] == ["FlowPrefill (operator)", "DistServe (FCFS)"]
    assert all(int(row["requests"]) > 0 for row in rows)
    assert sorted(path.name for path in (tmp_path / "out").glob("*.csv")) == [
        "bounds.csv", "checks.csv", "goodput.csv", "granularity.csv", "memory.csv", "operators.csv", "parity.csv",
        "pausing.csv", "prefill.csv", "summary.csv", "transformers.csv",
    ]  # fmt: skip


@pytest.mark.timeout(600)
def test_a_check_that_takes_too_long_ends_with_what_it_has(tmp_path: Path) -> None:
    process = start(tmp_path, "--tiny", "--out", "out", "--limit-s", "0.1", module="bench.gpu_check")
    shown, _ = process.communicate(timeout=550)
    assert process.returncode == 1
    assert shown.splitlines()[-1].split() == ["parity", "ended", "in", "time", "<=", "0.1", "s", "FAIL"]
    assert json.loads((tmp_path / "out" / "results.json").read_text())["missed"] == ["parity: ended in time"]
