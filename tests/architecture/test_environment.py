"""The three lists of packages agree: pyproject.toml (ranges), requirements.lock (exact), environment.yml (conda)."""

import re
import tomllib
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]


def locked(name: str = "requirements.lock") -> dict[str, str]:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", pin) for pin in pins), "every line is NAME==VERSION"
    return {canonicalize_name(name): version for name, version in (pin.split("==") for pin in pins)}


def test_every_declared_package_is_locked_within_its_range() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pins = locked()
    for line in project["dependencies"] + project["optional-dependencies"]["test"]:
        requirement = Requirement(line)
        version = pins[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), f"{line} but {version} is locked"


def test_conda_environment_installs_the_lock() -> None:
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    pip = next(entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict))
    assert pip == ["-r requirements.lock"]
    assert "python=3.11" in environment["dependencies"]


def test_sweeps_add_to_the_lock() -> None:
    """What both lists hold would shadow the locked version: botocore wants an older python-dateutil."""
    assert locked("requirements-sweeps.txt").keys() & locked().keys() == {"python-dateutil"}


def test_torch_is_the_version_the_results_were_measured_with() -> None:
    assert locked()["torch"] == "2.13.0"
