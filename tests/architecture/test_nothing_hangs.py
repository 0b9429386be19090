"""A thread that is not a daemon keeps a process alive after its work failed: every thread of the project is one."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("engine", "baselines", "workloads", "harness", "figures", "bench", "integrations", "tests")


def test_every_thread_is_a_daemon() -> None:
    found = 0
    for path in (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == "Thread":
                found += 1
                daemon = [ast.unparse(keyword.value) for keyword in node.keywords if keyword.arg == "daemon"]
                assert daemon == ["True"], f"{path.relative_to(ROOT)}:{node.lineno}: Thread(...) without daemon=True"
    assert found > 10
