"""Adding a policy is one file, one line in the table of names and one conf/system/*.yaml. Done here, to a copy."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

POLICY = '''"""Longest prompt first."""

from engine.core.ports import WorkItem
from engine.scheduling.policies.keyed import KeyPolicy


def longest_first(item: WorkItem, now_ns: int) -> int:
    """Most tokens to compute first."""
    return -item.new_tokens


class LongestFirst(KeyPolicy):
    """Longest prompt first."""

    def __init__(self) -> None:
        super().__init__(longest_first)
'''

USE = """
from types import SimpleNamespace

from engine.serving.catalogue import build_policy, check
from harness.assembly.effective import engine_settings
from harness.assembly.point import read_point
from harness.experiments.compose import outside_hydra

with outside_hydra() as job:
    point = read_point(job(["system=longest_first", "device=cpu"]).config)
settings = engine_settings(point, "", None)
check(settings)
items = [SimpleNamespace(new_tokens=n, tie=(1, n)) for n in (10, 30, 20)]
plan = build_policy(settings).plan(SimpleNamespace(items=items, executing=None), 0)
print(point.system.series, [item.new_tokens for item in plan.order])
"""


def test_a_policy_is_one_file_one_line_and_one_yaml(tmp_path: Path) -> None:
    for package in ("engine", "baselines", "workloads", "harness", "conf"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__", "local"))
    (tmp_path / "engine/scheduling/policies/longest_first.py").write_text(POLICY)
    catalogue = tmp_path / "engine/serving/catalogue.py"
    text = catalogue.read_text()
    line = '    "fcfs": FCFS,\n'
    assert line in text
    text = text.replace(line, line + '    "longest_first": LongestFirst,\n')
    imported = "from engine.scheduling.policies.fcfs import FCFS\n"
    text = text.replace(imported, imported + "from engine.scheduling.policies.longest_first import LongestFirst\n")
    catalogue.write_text(text)
    conf = (tmp_path / "conf/system/edf.yaml").read_text()
    conf = conf.replace("policy: edf", "policy: longest_first").replace("series: EDF", "series: Longest first")
    (tmp_path / "conf/system/longest_first.yaml").write_text(conf)
    done = subprocess.run(
        [sys.executable, "-c", USE],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[0] == "Longest first (operator) [30, 20, 10]"
