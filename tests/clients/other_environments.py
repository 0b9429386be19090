"""Programs of other people's environments, run in processes of their own against a server."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.other_clients import CERTIFICATES, QUIET

ROOT = Path(__file__).resolve().parents[2]


def interpreter(package: str, *environments: str) -> str:
    """The Python of the first environment that has a package; skips the test without one."""
    for environment in environments:
        if any((ROOT / environment).glob(f"lib/python*/site-packages/{package}/__init__.py")):
            return str(ROOT / environment / "bin" / "python")
    pytest.skip(f"the package {package} is in none of {', '.join(environments)}")


def output_of(words: Sequence[str], cwd: Path, timeout_s: float) -> str:
    """Standard output of a command that must end well."""
    env = {name: value for name, value in os.environ.items() if name not in CERTIFICATES} | QUIET
    done = subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, timeout=timeout_s, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout
