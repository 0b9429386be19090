"""How a point's rival (vLLM, SGLang) is started: its environment, its model folder, its command, its cores."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from baselines.servers import sglang, vllm
from baselines.servers.environments import Environment, NoEnvironmentError, environment_folder, find_environment
from baselines.servers.known_flags import known_flags, refuse_unknown
from baselines.servers.launch import Launch, LaunchError, ServerName
from baselines.servers.process import ServerProcess
from baselines.servers.process_table import pin_threads, title
from engine.model.catalogue import model_names
from harness.assembly.reading import SettingsError
from harness.assembly.rival import launch_settings
from harness.assembly.settings import PointSettings
from harness.experiments.machine import Cores
from harness.experiments.provenance import ROOT

CHECKPOINTS = Path("outputs") / "checkpoints"
LAUNCHES = {"vllm": vllm.launch, "sglang": sglang.launch}


class NotRunError(Exception):
    """A point that cannot be run on this machine; one sentence that says why and what would change it."""


@dataclass(frozen=True, slots=True)
class Rival:
    """A rival ready to be started."""

    launch: Launch
    environment: Environment

    @property
    def shown_command(self) -> tuple[str, ...]:
        """The command as it is recorded: without this machine's folders."""
        python = f"{environment_folder(self.launch.server)}/bin/python"
        return (python, *self.launch.arguments)

    @property
    def facts(self) -> dict[str, Any]:
        """For provenance. Only the variables set here: the caller's own may hold secrets."""
        found = self.environment
        return {
            "server": found.server,
            "package": found.package,
            "version": found.version,
            "variant": found.variant,
            "environment": dict(sorted(self.launch.env.items())),
        }


def rival_of(point: PointSettings, root: Path = ROOT) -> Rival:
    """Raises NotRunError without an environment, SettingsError for a flag it does not have or a missing model."""
    server: ServerName = "vllm" if point.system.backend == "vllm" else "sglang"
    device = "cuda" if point.device.kind == "cuda" else "cpu"
    try:
        environment = find_environment(server, root, device)
    except NoEnvironmentError as error:
        raise NotRunError(str(error)) from error
    try:
        extra = point.system.extra_flags or ()
        if extra:
            refuse_unknown(extra, known_flags(server, environment.version, environment.python), server)
        launch = LAUNCHES[server](launch_settings(point, model_folder(point)))
    except LaunchError as error:
        raise SettingsError(str(error)) from error
    return Rival(launch, environment)


def model_folder(point: PointSettings) -> str:
    """The model in Hugging Face format: the point's own folder, or the built-in model with the weights our engine has.

    With dummy weights every server draws its own: none are written, which for a large model would take minutes.

    Raises SettingsError.
    """
    name = point.model.checkpoint
    if name not in model_names():
        if not (Path(name) / "config.json").is_file():
            raise SettingsError(f"model.checkpoint: {name} is no built-in model and no folder with a config.json")
        return name
    drawn = point.model.dummy_weights
    folder = CHECKPOINTS / (f"{name}-no-weights" if drawn else f"{name}-seed{point.model.weights_seed}")
    if not (folder / "config.json").is_file():
        command = ["-m", "engine.torch_backend.checkpoint", "--model", name, "--seed", str(point.model.weights_seed)]
        command += ["--no-weights"] if drawn else []
        done = subprocess.run(
            [sys.executable, *command, "--out", str(folder)], check=False, capture_output=True, text=True
        )
        if done.returncode != 0:
            raise SettingsError(f"model.checkpoint: {name} cannot be written as a folder: {done.stderr.strip()}")
    return str(folder)


def place(process: ServerProcess, launch: Launch, cores: Cores) -> None:
    """The process that runs the model gets the engine's core, all others the client's, as our own server is placed."""
    if cores.engine is None or cores.others is None:
        return
    members = process.members()
    computing = {member.pid for member in members if launch.model_process in title(member.pid)}
    for member in members:
        pin_threads(member.pid, frozenset({cores.engine}) if member.pid in computing else cores.others)
