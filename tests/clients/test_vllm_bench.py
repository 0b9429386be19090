"""`vllm bench serve` against our server, and its TTFT beside our client's. python -m pytest -m servers"""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from engine.torch_backend.checkpoint_folder import write_checkpoint
from harness.loadgen.player import play
from harness.measurement.latency import measured, quantile, ttft_from_send_ns
from tests.clients.other_environments import ROOT, interpreter, output_of
from tests.fakes.golden_script import Script, Seen, after, refused
from tests.fakes.golden_server import GoldenServer
from tests.loadgen.rig import plans, settings, target
from tests.serving.server_process import REAL, running

pytestmark = [pytest.mark.servers, pytest.mark.timeout(900)]
BENCH = Path(__file__).with_name("vllm_bench_serve.py")
REQUESTS, RATE_RPS = 40, 20


@pytest.fixture(scope="module")
def python() -> str:
    return interpreter("vllm", ".venv-vllm")


@pytest.fixture(scope="module")
def folder(python: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bench") / "tiny"
    write_checkpoint("cpu_tiny", folder)
    return folder


def bench(python: str, folder: Path, base_url: str, served_model: str, *more: str) -> dict[str, Any]:
    """What `vllm bench serve` says of `REQUESTS` requests, sent at even gaps."""
    words = [
        *(python, str(BENCH), "--base-url", base_url, "--model", served_model, "--tokenizer", str(folder)),
        *("--dataset-name", "random", "--random-input-len", "40", "--random-output-len", "4", "--ignore-eos"),
        *("--num-prompts", str(REQUESTS), "--request-rate", str(RATE_RPS), "--burstiness", "1e6"),
        *("--save-result", "--result-dir", str(folder), "--result-filename", "result.json", *more),
    ]
    output_of(words, ROOT, 600)
    return dict(json.loads((folder / "result.json").read_text()))


@pytest.mark.parametrize("backend", [("openai", "/v1/completions"), ("openai-chat", "/v1/chat/completions")])
def test_our_server_serves_it(python: str, folder: Path, backend: tuple[str, str]) -> None:
    name, endpoint = backend
    with running(["--model", str(folder), "--max-context-tokens", "1024"], REAL) as server:
        address = f"http://127.0.0.1:{server.port}"
        said = bench(python, folder, address, str(folder), "--backend", name, "--endpoint", endpoint)
        report = server.report()
    assert (said["completed"], said["failed"], said["total_output_tokens"]) == (REQUESTS, 0, REQUESTS * 4)
    assert report["completed_requests"] >= REQUESTS
    assert report["failed_requests"] == 0


def completions_only(seen: Seen) -> Script:
    """It first asks for /tokenize, which few servers have."""
    return after(0.1, 0.01)(seen) if seen.path == "/v1/completions" else refused(404)


def test_its_ttft_and_ours_agree_on_a_server_that_takes_100_ms(python: str, folder: Path) -> None:
    async def both() -> tuple[float, float]:
        async with GoldenServer(completions_only) as server:
            theirs = await asyncio.to_thread(bench, python, folder, server.base_url, "golden", "--backend", "openai")
            requests = plans(REQUESTS, 1000 / RATE_RPS, max_tokens=4, tokens=40)
            ours = await play(requests, target(server.base_url), settings())
        assert theirs["completed"] == REQUESTS
        p50 = quantile(measured(ttft_from_send_ns(record) for record in ours.records), 0.5)
        assert p50 is not None
        return theirs["median_ttft_ms"], p50 / 1e6

    seen = []
    for _ in range(3):  # a busy machine delays the slower client more; it never makes two clients agree
        theirs_ms, our_ms = asyncio.run(both())
        seen.append((theirs_ms, our_ms))
        if abs(theirs_ms - our_ms) < 5:
            return
    pytest.fail(f"medians of TTFT, theirs and ours, in ms: {seen}")
