"""The plugin takes the engine's nouns and its scheduling, nothing else of ours, and vLLM only where it must."""

import ast
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "integrations" / "vllm_flowprefill" / "vllm_flowprefill"
NEEDS_VLLM = {"executor", "scheduler", "nesting", "runners", "plugin", "unsupported"}


def imported(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


def test_of_ours_only_core_and_scheduling() -> None:
    files = sorted(PACKAGE.glob("*.py"))
    assert len(files) > 8
    for path in files:
        for name in imported(path):
            top = name.split(".")[0]
            assert top not in ("harness", "baselines", "workloads", "figures", "torch"), f"{path.name} imports {name}"
            if top == "engine":
                assert name.startswith(("engine.core", "engine.scheduling")), f"{path.name} imports {name}"


def test_what_decides_needs_no_vllm() -> None:
    for path in PACKAGE.glob("*.py"):
        if any(name.split(".")[0] == "vllm" for name in imported(path)):
            assert path.stem in NEEDS_VLLM, path.name
