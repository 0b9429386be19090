"""The rivals' virtual environments: where they are, what is in them. Built by build_environment.py."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from baselines.servers.launch import ServerName

OLDEST = {"vllm": (0, 11), "sglang": (0, 5)}
"""The oldest versions whose command lines are as assumed here."""
RECORD = "flowprefill.json"
"""In the folder of an environment that is complete: what was built."""


class NoEnvironmentError(Exception):
    """A rival cannot run here; one sentence that says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """One that has been built and checked. folder: relative to the project. variant: cpu or cuda."""

    server: ServerName
    variant: str
    package: str
    version: str
    python: str
    folder: Path


def environment_folder(server: ServerName) -> str:
    """Its name in the project's folder."""
    return f".venv-{server}"


def find_environment(server: ServerName, root: Path, device: str) -> Environment:
    """The environment of a server for a device. Raises NoEnvironmentError.

    root: the project's folder. device: cpu or cuda.
    """
    folder = root / environment_folder(server)
    make = f"make env-{server}"
    try:
        record: dict[str, Any] = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except OSError as error:
        raise NoEnvironmentError(f"{server} needs an environment of its own: run `{make}` first") from error
    except ValueError as error:
        raise NoEnvironmentError(f"{folder.name}/{RECORD} cannot be read: run `{make}` again") from error
    if record["variant"] != device:
        raise NoEnvironmentError(
            f"{folder.name} holds {server} for {record['variant']}, not for {device}: run `{make} VARIANT={device}`"
        )
    if release(record["version"]) < OLDEST[server]:
        oldest = ".".join(map(str, OLDEST[server]))
        raise NoEnvironmentError(f"{folder.name} holds {server} {record['version']}; {oldest} or newer is needed")
    return Environment(
        server=server,
        variant=record["variant"],
        package=record["package"],
        version=record["version"],
        python=str(folder / "bin" / "python"),
        folder=folder,
    )


def release(version: str) -> tuple[int, ...]:
    """The leading numbers of a version, for comparing: 0.11.0rc2 -> (0, 11, 0)."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in found[0].split(".")) if found else ()
