"""No bytes from outside become code: no pickles, no eval, no shell, no code of a checkpoint.

Read from the syntax trees of everything but the tests. What a process reads from a socket is JSON and plain integers
(`engine.serving.channel`, `engine.torch_backend.rank_channel`), what it reads from a checkpoint JSON and safetensors.
"""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("engine", "baselines", "workloads", "harness", "figures", "bench", "integrations")
MODULES = ("pickle", "_pickle", "cPickle", "cloudpickle", "dill", "shelve", "marshal", "code", "codeop", "xmlrpc")
CONNECTIONS = ("multiprocessing.connection", "multiprocessing.managers")
"""They unpickle what comes out of a socket."""
BUILTINS = ("eval", "exec", "compile", "__import__")
METHODS = ("read_pickle", "to_pickle", "load_module", "unsafe_load", "full_load")
OBJECT_COLLECTIVES = (
    "broadcast_object_list",
    "all_gather_object",
    "gather_object",
    "scatter_object_list",
    "send_object_list",
    "recv_object_list",
)
"""Of torch.distributed: pickles over TCP."""
KEYWORDS = {"trust_remote_code": True, "shell": True, "allow_pickle": True, "weights_only": False}


def files() -> list[Path]:
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


def faults(source: str) -> list[str]:
    """What in this source could run foreign code."""
    return [what for node in ast.walk(ast.parse(source)) for what in _faults_of(node)]


def _faults_of(node: ast.AST) -> list[str]:
    match node:
        case ast.Import(names=names):
            return [n.name for n in names if n.name.split(".")[0] in MODULES or n.name in CONNECTIONS]
        case ast.ImportFrom(module=str(module), names=names):
            full = [f"{module}.{n.name}" for n in names]
            return [n for n in full if n.split(".")[0] in MODULES or n.startswith(CONNECTIONS)]
        case ast.Call():
            return _faults_of_call(node)
    return []


def _faults_of_call(call: ast.Call) -> list[str]:
    name = ast.unparse(call.func)
    last = name.rpartition(".")[2]
    given = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    found = [f"{key}={value}" for key, value in KEYWORDS.items() if _is(given.get(key), value)]
    if name in BUILTINS or name in ("os.system", "os.popen") or last in METHODS or last in OBJECT_COLLECTIVES:
        found.append(name)
    if name == "torch.load" and not _is(given.get("weights_only"), True):
        found.append("torch.load without weights_only=True")
    if name in ("yaml.load", "yaml.load_all") and "SafeLoader" not in ast.unparse(call):
        found.append(f"{name} without a SafeLoader")
    return found


def _is(given: ast.expr | None, value: bool) -> bool:
    return isinstance(given, ast.Constant) and given.value is value


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_runs_foreign_code(path: Path) -> None:
    assert faults(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "import multiprocessing.connection",
        "from multiprocessing import connection",
        "from multiprocessing.connection import Listener",
        "from multiprocessing.connection import Connection",
        "def late():\n    import dill",
        "eval('1')",
        "exec(text)",
        "compile(text, 'x', 'exec')",
        "__import__(name)",
        "os.system('ls')",
        "subprocess.run('ls', shell=True)",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "numpy.load(path, allow_pickle=True)",
        "pandas.read_pickle(path)",
        "yaml.load(text)",
        "yaml.load(text, yaml.Loader)",
        "AutoModel.from_pretrained(name, trust_remote_code=True)",
        "dist.broadcast_object_list(sent)",
        "dist.send_object_list(sent)",
    ],
)
def test_the_check_sees(source: str) -> None:
    assert faults(source)


@pytest.mark.parametrize(
    "source",
    [
        "re.compile(pattern)",
        "model.eval()",
        "torch.load(path, weights_only=True)",
        "yaml.load(text, Loader=yaml.SafeLoader)",
        "yaml.safe_load(text)",
        "subprocess.run(['ls'])",
        "numpy.load(path)",
        "dist.all_reduce(tensor)",
    ],
)
def test_the_check_lets_pass(source: str) -> None:
    assert faults(source) == []
