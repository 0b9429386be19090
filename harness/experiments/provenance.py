"""Where a point comes from: code, versions, machine, command. Kept beside its records, never in tables."""

import importlib.metadata
import platform
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.experiments.machine_facts import machine_facts
from harness.experiments.secrets_left_out import without_secrets

PACKAGES = ("torch", "numpy", "scipy", "aiohttp", "hydra-core", "pandas", "tokenizers", "safetensors")
ROOT = Path(__file__).resolve().parents[2]


def provenance(config: Mapping[str, Any], **facts: Any) -> dict[str, Any]:
    """Everything to walk a number back by. No environment variables, and no keys from the command line.

    config: the resolved settings. facts: what the caller knows (inputs, device, argv of the server, ...).
    """
    return {
        "code": commit(),
        "command": [Path(sys.argv[0]).name, *without_secrets(sys.argv[1:])],
        "measured_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "versions": versions(),
        "machine": machine_facts(),
        **facts,
        "config": dict(config),
    }


def commit(root: Path = ROOT) -> dict[str, Any]:
    """The commit and whether tracked files differ from it; both None outside a git checkout."""
    head = _git(root, "rev-parse", "HEAD")
    changed = _git(root, "status", "--porcelain", "--untracked-files=no", "--", ":!results")
    return {"commit": head, "dirty": None if changed is None else bool(changed)}


def versions() -> dict[str, str | None]:
    """Of Python and the packages that could change a number."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    return found


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=root, check=False, capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
