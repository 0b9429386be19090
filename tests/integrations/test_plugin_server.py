"""The plugin in a real vLLM: the tokens of undisturbed runs, nothing left behind, an error ends one request. Minutes.

python -m pytest -m servers tests/integrations
"""

import asyncio
import dataclasses
import json
import random
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from engine.torch_backend.checkpoint_folder import write_checkpoint
from tests.baselines.real_server import ROOT, SERVED, launch_of, present, running

pytestmark = [pytest.mark.servers, pytest.mark.timeout(3600)]
FATAL_TOKENS = 77
"""As in bench/vllm_plugin/failing_executor.py."""
CHUNK_TOKENS = 1024


@dataclass(frozen=True)
class Server:
    url: str
    nesting_log: Path
    metrics: Path

    def nestings(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.nesting_log.read_text(encoding="utf-8").splitlines()]


@dataclass(frozen=True)
class Reply:
    request_id: str
    token_ids: tuple[int, ...]
    error: str = ""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Five operators a layer, chunks of 1024 tokens, a KV cache that two long prompts do not fit into."""
    folder = tmp_path_factory.mktemp("plugin")
    write_checkpoint("cpu_demo", folder / "model")
    (folder / "metrics").mkdir()
    log = folder / "nestings.jsonl"
    options = {"flowprefill": {"granularity": "operator", "order": "edf", "nesting_log": str(log)}}
    launch = launch_of(
        "vllm", folder / "model", policy="fcfs", max_context_tokens=4800, kv_tokens=5120, chunk_tokens=CHUNK_TOKENS,
        extra_flags=(
            "--scheduler-cls", "vllm_flowprefill.scheduler.DeadlineScheduler",
            "--distributed-executor-backend", "bench.vllm_plugin.failing_executor.FailingExecutor",
            "--no-async-scheduling", "--additional-config", json.dumps(options),
        ),
    )  # fmt: skip
    env = {**launch.env, "PROMETHEUS_MULTIPROC_DIR": str(folder / "metrics"), "PYTHONPATH": str(ROOT)}
    with running("vllm", dataclasses.replace(launch, env=env), folder / "log") as (_, target):
        yield Server(target.base_url, log, folder / "metrics")


async def ask(
    server: Server, tokens: int, *, output: int = 3, ttft_slo: float | None = None, delay_s: float = 0.0, **more: Any
) -> Reply:
    """One prompt, the same for the same length."""
    await asyncio.sleep(delay_s)
    drawn = random.Random(tokens)
    body: dict[str, Any] = {
        "model": SERVED, "prompt": [drawn.randrange(5, 4000) for _ in range(tokens)], "max_tokens": output,
        "temperature": 0, "ignore_eos": True, "return_token_ids": True, **more,
    }  # fmt: skip
    if ttft_slo is not None:
        body["vllm_xargs"] = {"ttft_slo": ttft_slo}
    connector = aiohttp.TCPConnector(force_close=True)
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.post(f"{server.url}/v1/completions", json=body) as response,
    ):
        answer = await response.json()
    if response.status != 200:
        return Reply("", (), answer["error"]["message"])
    return Reply(answer["id"], tuple(answer["choices"][0]["token_ids"]))


async def rest(server: Server) -> dict[str, float]:
    """The gauges, once nothing runs and nothing waits; those of KV and depth must then be 0."""
    names = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")
    for _ in range(600):
        async with aiohttp.ClientSession() as session, session.get(f"{server.url}/metrics") as response:
            lines = (await response.text()).splitlines()
        found = {line.split("{")[0].split(" ")[0]: float(line.split(" ")[-1]) for line in lines if line[:1] != "#"}
        if not any(found[name] for name in names):
            return found
        # vLLM refreshes its gauges after a step only.
        await ask(server, 16, output=1)
        await asyncio.sleep(0.2)
    raise AssertionError(f"the server does not come to rest: { {name: found[name] for name in names} }")


WAVE = ((4000, 300.0, 0.0), (1500, 200.0, 0.2), (700, 100.0, 0.4), (300, 50.0, 0.5), (130, None, 0.5), (64, 25.0, 0.6))
"""Tokens, SLO, delay: each more urgent than what runs when it comes."""


def test_nested_prefills_give_the_tokens_of_undisturbed_ones(server: Server) -> None:
    async def waves() -> None:
        alone = {tokens: (await ask(server, tokens)).token_ids for tokens, _, _ in WAVE}
        seen: dict[str, int] = {}
        for _ in range(6):
            asked = (ask(server, tokens, ttft_slo=slo, delay_s=delay) for tokens, slo, delay in WAVE)
            replies = await asyncio.gather(*asked)
            for (tokens, _, _), reply in zip(WAVE, replies, strict=True):
                assert reply.token_ids == alone[tokens], (tokens, reply)
                seen[reply.request_id] = tokens
            nested = server.nestings()
            # Their ids are ours with a number and a random end.
            inside = [seen[name] for entry in nested for name in seen if entry["request_id"].startswith(name)]
            if max((entry["depth"] for entry in nested), default=0) >= 2 and max(inside, default=0) > CHUNK_TOKENS:
                break
        else:
            raise AssertionError(f"no nesting of depth 2 with chunks inside among {nested}")
        for entry in nested:
            assert entry["asked_at_ns"] <= entry["started_at_ns"] < entry["ended_at_ns"]
            assert not entry["failed"]
        counted = await rest(server)
        assert counted["flowprefill_preemptions_total"] == len(nested)
        assert counted["flowprefill_preempted_prefills"] == 0

    asyncio.run(waves())


SEEDED = ((500, 200.0), (250, 100.0), (100, 50.0), (64, 25.0))
"""Together they fit into one step: stock vLLM for CPU ends where the prompt of a request with a seed is cut in two."""


def test_sampling_gives_the_tokens_of_undisturbed_runs_with_the_same_seed(server: Server) -> None:
    sampled: dict[str, Any] = {"temperature": 0.8, "seed": 11, "output": 8}

    async def waves() -> None:
        alone = {tokens: (await ask(server, tokens, **sampled)).token_ids for tokens, _ in SEEDED}
        again = {tokens: (await ask(server, tokens, **sampled)).token_ids for tokens, _ in SEEDED}
        greedy = {tokens: (await ask(server, tokens, output=8)).token_ids for tokens, _ in SEEDED}
        assert again == alone
        assert greedy != alone, "the temperature changes something"
        outer = (await ask(server, 3500)).token_ids
        before = len(server.nestings())
        for gap_s in 2 * (
            0.1,
            0.05,
            0.025,
            0.012,
            0.006,
        ):  # the next comes while one is nested: machines differ
            long, *replies = await asyncio.gather(
                ask(server, 3500, ttft_slo=300.0),
                *(
                    ask(server, tokens, ttft_slo=slo, delay_s=0.2 + i * gap_s, **sampled)
                    for i, (tokens, slo) in enumerate(SEEDED)
                ),
            )
            assert long.token_ids == outer
            for (tokens, _), reply in zip(SEEDED, replies, strict=True):
                assert reply.token_ids == alone[tokens], (tokens, reply)
            if max((entry["depth"] for entry in server.nestings()[before:]), default=0) >= 2:
                return
        raise AssertionError("no seeded request was nested in another one")

    asyncio.run(waves())


def test_aborts_in_every_state_leave_nothing(server: Server) -> None:
    async def leave() -> dict[str, float]:
        for give_up_s in (0.1, 0.45, 0.7, 1.2, 2.5):
            asked = [
                asyncio.ensure_future(ask(server, *(wave[:1]), ttft_slo=wave[1], delay_s=wave[2])) for wave in WAVE
            ]
            await asyncio.sleep(give_up_s)
            for task in asked[::2]:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
        return await rest(server)

    assert asyncio.run(leave())["flowprefill_preempted_prefills"] == 0


def test_an_error_in_a_nested_step_ends_that_request_only(server: Server) -> None:
    async def fail() -> tuple[Reply, Reply, Reply, Reply]:
        alone = await ask(server, 4000)
        outer, fatal, other = await asyncio.gather(
            ask(server, 4000, ttft_slo=300.0),
            ask(server, FATAL_TOKENS, ttft_slo=20.0, delay_s=0.3),
            ask(server, 130, ttft_slo=30.0, delay_s=0.3),
        )
        return alone, outer, fatal, other

    alone, outer, fatal, other = asyncio.run(fail())
    assert fatal.error
    assert outer.token_ids == alone.token_ids
    assert len(other.token_ids) == 3
    assert [entry["failed"] for entry in server.nestings()].count(True) == 1
    asyncio.run(rest(server))


PRIVATE = """
import inspect
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine.core import EngineCoreProc
from vllm.v1.request import Request
from vllm.v1.worker.cpu_model_runner import CPUModelRunner
from vllm.v1.worker.gpu_input_batch import InputBatch
from vllm_flowprefill import private_names as names
for owner, wanted in ((EngineCoreProc, names.CORE), (Scheduler, names.SCHEDULER), (CPUModelRunner, names.RUNNER),
                      (InputBatch, names.INPUT_BATCH), (Request, names.REQUEST)):
    text = "".join(inspect.getsource(part) for part in owner.__mro__ if part.__module__.startswith("vllm."))
    for name in wanted:
        if not hasattr(owner, name) and f"self.{name}" not in text:
            print(f"{owner.__name__}.{name}")
"""


def test_every_private_attribute_is_there() -> None:
    """Prints the names of those that this version has moved."""
    done = subprocess.run([present("vllm").python, "-c", PRIVATE], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == []
