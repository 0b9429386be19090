"""Who may import whom (docs/architecture.md), read from the syntax trees: every import counts, lazy ones too."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OURS = ("engine", "baselines", "workloads", "harness", "figures")

# package -> what it may import of ours. The longest matching package name decides.
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "engine.core": ("engine.core",),
    "engine.scheduling": ("engine.core", "engine.scheduling"),
    "engine.model": ("engine.core", "engine.model"),
    "engine.torch_backend": ("engine.core", "engine.model", "engine.scheduling", "engine.torch_backend"),
    "engine.simulation": ("engine.core", "engine.model", "engine.scheduling", "engine.simulation"),
    "engine.serving": ("engine.core", "engine.model", "engine.scheduling", "engine.torch_backend", "engine.serving"),
    "engine.serving.catalogue": ("engine.core", "engine.scheduling", "engine.serving", "baselines.policies"),
    "baselines.policies": ("engine.core", "engine.scheduling", "baselines.policies"),
    "baselines.servers": ("engine.core", "baselines.servers"),
    "workloads": ("engine.core", "workloads"),
    "harness.loadgen": ("engine.core", "harness.loadgen"),
    "harness.measurement": ("engine.core", "harness.measurement"),
    "harness.assembly": (
        "engine",
        "baselines",
        "workloads",
        "harness.loadgen",
        "harness.measurement",
        "harness.assembly",
    ),
    "harness.experiments": ("engine", "baselines", "workloads", "harness"),
    "figures": ("harness.measurement", "engine.core", "figures"),
}
WORLD_FREE = ("engine.core", "engine.model", "engine.scheduling", "engine.simulation", "baselines.policies")
STANDARD_LIBRARY_ONLY = ("engine.core", "engine.model")
WORLD = ("time", "random", "asyncio", "threading", "multiprocessing", "socket", "datetime", "secrets")
THIRD_PARTY_HOMES = {
    "torch": ("engine.torch_backend", "engine.serving"),
    "safetensors": ("engine.torch_backend",),
    "tokenizers": ("engine.torch_backend", "engine.serving"),
    "matplotlib": ("figures",),
    "seaborn": ("figures",),
    "hydra": ("harness.experiments.compose",),
    "omegaconf": ("harness.experiments.compose",),
    "pandas": ("harness.measurement", "harness.experiments", "figures"),
    "aiohttp": ("engine.serving", "harness.loadgen", "harness.experiments"),
    "prometheus_client": ("engine.serving",),
    "flash_attn": ("engine.torch_backend",),
    "flashinfer": ("engine.torch_backend",),
    "vllm": (),
    "sglang": (),
    "ray": (),
    "submitit": (),
    "scipy": ("harness.measurement.bound",),
    "transformers": (),
}
OPTIONAL = ("hydra", "omegaconf", "scipy", "msgspec", "prometheus_client", "rich", "yaml", "tqdm")
BARE_MACHINE = ("engine", "harness.loadgen", "harness.measurement")


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules() -> list[Path]:
    return [path for package in OURS for path in sorted((ROOT / package).rglob("*.py"))]


def imports(tree: ast.AST) -> list[str]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide who imports whom"
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


def inside(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(package + ".") for package in packages)


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


@pytest.mark.parametrize("path", modules(), ids=module_name)
def test_imports_keep_to_the_rules(path: Path) -> None:
    module = module_name(path)
    homes = [package for package in MAY_IMPORT if inside(module, (package,))]
    allowed = MAY_IMPORT[max(homes, key=len)] if homes else ()
    for name in imports(parsed(path)):
        top = name.split(".")[0]
        if top in OURS and homes:
            assert inside(name, allowed), f"{module} may not import {name}"
        if top in THIRD_PARTY_HOMES:
            assert inside(module, THIRD_PARTY_HOMES[top]), f"{module} may not import {name}"
        if inside(module, WORLD_FREE):
            assert top not in WORLD, f"{module} may not import {name}: it knows no clock, chance or thread"


@pytest.mark.parametrize("path", [p for p in modules() if inside(module_name(p), WORLD_FREE)], ids=module_name)
def test_decisions_read_no_environment(path: Path) -> None:
    for node in ast.walk(parsed(path)):
        assert not (isinstance(node, ast.Attribute) and node.attr in {"environ", "getenv"}), module_name(path)


@pytest.mark.parametrize("path", [p for p in modules() if inside(module_name(p), BARE_MACHINE)], ids=module_name)
def test_a_bare_machine_can_import_the_core(path: Path) -> None:
    top_level = ast.Module(
        body=[n for n in parsed(path).body if isinstance(n, ast.Import | ast.ImportFrom)], type_ignores=[]
    )
    for name in imports(top_level):
        assert name.split(".")[0] not in OPTIONAL, f"{module_name(path)} needs {name} at import time"


@pytest.mark.parametrize(
    "path", [p for p in modules() if inside(module_name(p), STANDARD_LIBRARY_ONLY)], ids=module_name
)
def test_what_everyone_shares_needs_the_standard_library_alone(path: Path) -> None:
    for name in imports(parsed(path)):
        top = name.split(".")[0]
        assert top in OURS or top in sys.stdlib_module_names, f"{module_name(path)} may not import {name}"


def test_no_folder_or_file_has_a_name_that_says_nothing() -> None:
    refused = {"utils", "util", "common", "helpers", "helper", "misc", "base", "manager"}
    for path in modules():
        assert not refused & {part.removesuffix(".py") for part in path.relative_to(ROOT).parts}, path
