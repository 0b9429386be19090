"""Single prompts through HTTP: our server beside the real vLLM and SGLang, same checkpoint, same machine, same run.

python -m bench.prefill_vs_servers. All run at once, in float32 with --threads threads, each with one token to give; one
request is open at a time, and who is asked first alternates. The ratio is the rival's time over ours in the same round,
above 1 = ours is faster; exit code 1 when the lower end of an interval is below 1 anywhere. Needs the environments of
`make env-vllm env-sglang`. With two cores or more every model runs on the first, all the rest on the others.
"""

import argparse
import asyncio
import contextlib
import http.client
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from baselines.servers import sglang, vllm
from baselines.servers.environments import NoEnvironmentError, find_environment
from baselines.servers.launch import LaunchSettings
from baselines.servers.ports import free_port
from baselines.servers.process import ServerProcess, ServerProcessError
from bench.paired_ratio import Pair, median_ratio, medians_ms
from engine.core.command_line import OneSentenceParser, run_command
from engine.torch_backend.checkpoint_folder import write_checkpoint
from harness.assembly.settings import DeviceSettings
from harness.experiments.machine import Cores, pinned, share_cores
from harness.experiments.rival_server import place
from harness.loadgen.errors import ServerNotReadyError
from harness.loadgen.settings import SLOStyle, Target
from harness.loadgen.warmup import wait_until_ready
from workloads.prompts import PromptSettings, make_prompts

LAUNCHES = {"vllm": vllm.launch, "sglang": sglang.launch}
START_S = 1800.0
TIMEOUT_S = 600.0


@dataclass(frozen=True)
class Plan:
    """What all servers have in common."""

    folder: Path
    context_tokens: int
    chunk_tokens: int
    threads: int
    cores: Cores
    logs: Path


@dataclass(frozen=True)
class Server:
    """One that runs."""

    port: int
    model: str
    process: ServerProcess

    def prefill_s(self, prompt: Sequence[int], clock: str) -> float:
        """Seconds of one whole request for one token. Raises ValueError when the answer is another.

        clock: wall, or cpu = what all processes of the server together computed.
        """
        fields = {"model": self.model, "prompt": list(prompt), "max_tokens": 1, "temperature": 0, "ignore_eos": True}
        body = json.dumps(fields)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        connection.connect()  # idle connections are closed by some servers, so each request has its own
        started_s = self._now_s(clock)
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        given = response.read()
        spent_s = self._now_s(clock) - started_s
        connection.close()
        if response.status != 200:
            raise ValueError(f"HTTP {response.status}: {given[:200]!r}")
        usage = json.loads(given)["usage"]
        if (usage["prompt_tokens"], usage["completion_tokens"]) != (len(prompt), 1):
            raise ValueError(f"asked {len(prompt)} tokens for one, the server counts {usage}")
        return spent_s

    def _now_s(self, clock: str) -> float:
        if clock == "wall":
            return time.perf_counter()
        threads = (t for member in self.process.members() for t in Path(f"/proc/{member.pid}/task").glob("*/schedstat"))
        return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


@contextlib.contextmanager
def ours(plan: Plan, own_flags: Sequence[str]) -> Iterator[Server]:
    port = free_port()
    argv = [sys.executable, "-m", "engine.serving.server", "--model", str(plan.folder), "--dtype", "float32"]
    argv += ["--threads", str(plan.threads), "--max-context-tokens", str(plan.context_tokens), "--port", str(port)]
    if plan.cores.engine is not None:
        argv += ["--engine-cpu", str(plan.cores.engine)]
    with running([*argv, *own_flags], {}, port, plan, "ours") as process:
        if plan.cores.others is not None:
            os.sched_setaffinity(process.pid, plan.cores.others)
        yield Server(port, str(plan.folder), process)


@contextlib.contextmanager
def rival(name: str, plan: Plan) -> Iterator[Server]:
    environment = find_environment("vllm" if name == "vllm" else "sglang", Path.cwd(), "cpu")
    settings = LaunchSettings(
        model=str(plan.folder), served_model=str(plan.folder), device="cpu", dtype="float32", policy="fcfs",
        max_context_tokens=plan.context_tokens, kv_tokens=2 * plan.context_tokens, chunk_tokens=plan.chunk_tokens,
        threads=plan.threads,
    )  # fmt: skip
    launch, port = LAUNCHES[name](settings), free_port()
    with running(launch.argv(environment.python, port), launch.env, port, plan, name) as process:
        place(process, launch, plan.cores)
        yield Server(port, str(plan.folder), process)


@contextlib.contextmanager
def running(argv: Sequence[str], env: Mapping[str, str], port: int, plan: Plan, name: str) -> Iterator[ServerProcess]:
    """A server that has given a token; stopped at the end."""
    print(f"starting {name}", file=sys.stderr, flush=True)
    with ServerProcess(argv, plan.logs / f"{name}.log", env, port=port, scratch=True) as process:
        target = Target(f"http://127.0.0.1:{port}", str(plan.folder), slo_style=SLOStyle.NONE)
        asyncio.run(ready(target, process))
        yield process
    for sentence in process.left_behind():
        print(f"{name}: {sentence}", file=sys.stderr)


async def ready(target: Target, process: ServerProcess) -> None:
    waiting = asyncio.ensure_future(wait_until_ready(target, START_S, prompt=range(16, 32)))
    try:
        while not waiting.done():
            await asyncio.wait([waiting], timeout=1.0)
            process.require_alive()
        waiting.result()
    finally:
        waiting.cancel()


def rounds(servers: dict[str, Server], prompts: Sequence[Sequence[int]], clock: str) -> dict[str, list[float]]:
    """Seconds of each server, one per prompt; the order goes round. The first prompt only warms up."""
    taken: dict[str, list[float]] = {name: [] for name in servers}
    names = list(servers)
    for number, prompt in enumerate(prompts):
        first = number % len(names)
        for name in (*names[first:], *names[:first]):
            spent_s = servers[name].prefill_s(prompt, clock)
            if number > 0:
                taken[name].append(spent_s)
    return taken


def tell(tokens: int, name: str, measured: Sequence[Pair]) -> bool:
    """One line; whether ours is slower somewhere in the interval."""
    ratio, low, high = median_ratio(measured)
    our_ms, their_ms = medians_ms(measured)
    ours, theirs = (f"{ms:8.1f} ms ({tokens / ms * 1e3:6.0f} tokens/s)" for ms in (our_ms, their_ms))
    print(
        f"{tokens:5d} tokens: ours {ours}, {name:6s} {theirs}, "
        f"ratio {ratio:.3f} [{low:.3f}, {high:.3f}], {len(measured)} pairs",
        flush=True,
    )
    return low < 1


def measure(given: argparse.Namespace, plan: Plan) -> bool:
    """Whether ours is slower anywhere."""
    slower = False
    vocab = int(json.loads((plan.folder / "config.json").read_text())["vocab_size"])
    with contextlib.ExitStack() as held:
        servers = {"ours": held.enter_context(ours(plan, given.own_flags.split()))}
        for name in given.rivals:
            servers[name] = held.enter_context(rival(name, plan))
        held.enter_context(pinned(plan.cores.others))
        for tokens in given.tokens:
            # Two prompts of one length never begin alike: a prefix cache would find nothing.
            prompts = make_prompts([tokens] * (given.pairs + 1), PromptSettings(vocab, content=str(tokens)), seed=0)
            taken = rounds(servers, prompts, given.clock)
            for name in given.rivals:
                slower |= tell(tokens, name, list(zip(taken["ours"], taken[name], strict=True)))
    return slower


def main(arguments: Sequence[str] | None = None) -> int:
    parser = OneSentenceParser(
        prog="python -m bench.prefill_vs_servers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--folder", type=Path, default=Path("checkpoints/cpu_demo"), help="written first if absent")
    parser.add_argument("--rivals", nargs="+", choices=sorted(LAUNCHES), default=["vllm", "sglang"])
    parser.add_argument("--tokens", type=int, nargs="+", default=[512, 2048, 4096])
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--chunk-tokens", type=int, default=8192, help="the rivals' step (default: whole prompts)")
    parser.add_argument(
        "--clock", choices=["wall", "cpu"], default="wall", help="cpu: processor time, where the machine is not quiet"
    )
    parser.add_argument("--own-flags", default="", help="more flags for our server, in one word")
    given = parser.parse_args(arguments)
    if not given.folder.is_dir():
        write_checkpoint("cpu_demo", given.folder)
    context_tokens = max(*given.tokens, 1024) + 64
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the servers are stopped in order, too
    cores = share_cores(DeviceSettings(name="cpu", kind="cpu", threads=given.threads))
    with tempfile.TemporaryDirectory(prefix="bench-") as logs:
        plan = Plan(given.folder, context_tokens, given.chunk_tokens, given.threads, cores, Path(logs))
        try:
            return 1 if measure(given, plan) else 0
        except (NoEnvironmentError, ServerProcessError, ServerNotReadyError, ValueError, OSError) as error:
            print(f"prefill_vs_servers: {error}", file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(run_command(main))
