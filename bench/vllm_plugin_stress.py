"""Minutes of mixed requests against vLLM with the plugin: does it crash, leak, or give another token?

python -m bench.vllm_plugin_stress [--minutes 15]. Needs `make env-vllm`. Prompts of 16 to 4000 tokens with SLOs from a
quarter of a second to minutes or none, a KV cache that two long ones do not fit into, clients that leave at random
moments, and prompts whose nested step ends in an error. Every whole answer must have the tokens of the same prompt
alone; afterwards nothing may run, wait or hold KV. Prints what was seen; exit code 1 when something does not hold.
"""

import argparse
import asyncio
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from baselines.servers.environments import NoEnvironmentError
from baselines.servers.process import ServerProcessError
from bench.prefill_vs_servers import Plan
from bench.vllm_plugin.asking import prompt_of
from bench.vllm_plugin.servers import LOG, Server, plugin_flags, server
from engine.core.command_line import OneSentenceParser, run_command
from harness.experiments.machine import Cores
from harness.loadgen.errors import ServerNotReadyError

LENGTHS = (16, 40, 90, 130, 300, 555, 700, 1100, 1500, 2300, 3100, 4000)
FATAL_TOKENS = 77
"""As in vllm_plugin/failing_executor.py."""
SLOS_S = (0.25, 1.0, 5.0, 30.0, 120.0, None)
MOST_OUTPUT = 16
LEAVING = 0.25
FATAL = 0.03
MOST_OPEN = 16
CHUNK_TOKENS, KV_TOKENS, CONTEXT_TOKENS = 1024, 5120, 4800
GAUGES = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc",
          "flowprefill_preempted_prefills")  # fmt: skip
TOTALS = ("vllm:num_preemptions_total", "flowprefill_preemptions_total", "flowprefill_failed_preemptions_total")
REST_S = 300.0


@dataclass
class Seen:
    """ends: whole, left, injected (status 500 of a fatal prompt), and anything else by its words. other: wrong ids."""

    ends: Counter[str] = field(default_factory=Counter)
    other: list[str] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    deepest: int = 0
    rested: bool = False

    def faults(self) -> list[str]:
        """What does not hold, a sentence each."""
        found = [f"{count} requests ended with {end}" for end, count in self.ends.items() if end not in ENDS]
        found += self.other[:5]
        if not self.rested:
            found.append(f"the server did not come to rest: {self.metrics}")
        found += [f"no request was {end}" for end in ENDS if not self.ends[end]]
        found += [f"{name} stayed 0" for name in TOTALS if not self.metrics.get(name)]
        return found


ENDS = ("whole", "left", "injected")


async def tokens_of(one: Server, tokens: int, output: int, slo_s: float | None) -> tuple[int, ...]:
    """The answer's token ids. Raises RuntimeError with the server's words for any other answer."""
    body: dict[str, object] = {
        "model": one.model, "prompt": prompt_of(tokens), "max_tokens": output, "temperature": 0, "ignore_eos": True,
        "return_token_ids": True,
    }  # fmt: skip
    if slo_s is not None:
        body["vllm_xargs"] = {"ttft_slo": slo_s}
    connector, timeout = aiohttp.TCPConnector(force_close=True), aiohttp.ClientTimeout(total=1800)
    async with (
        aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
        session.post(f"{one.url}/v1/completions", json=body) as response,
    ):
        answer = await response.json()
    if response.status != 200:
        raise RuntimeError(f"HTTP {response.status}: {str(answer)[:120]}")
    return tuple(answer["choices"][0]["token_ids"])


async def client(one: Server, alone: dict[int, tuple[int, ...]], draw: random.Random, seen: Seen) -> None:
    """One request that may leave early."""
    tokens = FATAL_TOKENS if draw.random() < FATAL else draw.choice(LENGTHS)
    output, slo_s = draw.randint(1, MOST_OUTPUT), draw.choice(SLOS_S)
    patience_s = draw.expovariate(1 / 3.0) if draw.random() < LEAVING else None
    try:
        async with asyncio.timeout(patience_s):
            given = await tokens_of(one, tokens, output, slo_s)
    except TimeoutError:
        seen.ends["left"] += 1
    except RuntimeError as error:
        seen.ends["injected" if tokens == FATAL_TOKENS and "HTTP 500" in str(error) else str(error)] += 1
    except aiohttp.ClientError as error:
        seen.ends[type(error).__name__] += 1
    else:
        seen.ends["whole"] += 1
        if given != alone[tokens][:output]:
            seen.other.append(f"{tokens} tokens gave {given}, alone {alone[tokens][:output]}")


async def metrics(one: Server) -> dict[str, float]:
    """Gauges and totals."""
    async with aiohttp.ClientSession() as session, session.get(f"{one.url}/metrics") as response:
        lines = (await response.text()).splitlines()
    every = {line.split("{")[0].split(" ")[0]: float(line.split(" ")[-1]) for line in lines if line[:1] != "#"}
    return {name: every.get(name, 0.0) for name in (*GAUGES, *TOTALS)}


async def storm(one: Server, seconds: float, seed: int, least_gap_s: float) -> Seen:
    """Requests for so long, then rest. At most MOST_OPEN are open; gaps are drawn around `least_gap_s`."""
    seen, draw = Seen(), random.Random(seed)
    alone = {tokens: await tokens_of(one, tokens, MOST_OUTPUT, None) for tokens in (*LENGTHS, FATAL_TOKENS)}
    ends_s = time.monotonic() + seconds
    told_s = time.monotonic()
    open_ones: set[asyncio.Task[None]] = set()
    while time.monotonic() < ends_s:
        while len(open_ones) >= MOST_OPEN:
            _, open_ones = await asyncio.wait(open_ones, return_when=asyncio.FIRST_COMPLETED)
        open_ones.add(asyncio.create_task(client(one, alone, draw, seen)))
        await asyncio.sleep(draw.expovariate(1 / least_gap_s))
        open_ones = {task for task in open_ones if not task.done()}
        if time.monotonic() - told_s > 60:
            told_s = time.monotonic()
            print(f"{(ends_s - told_s) / 60:.0f} min left: {dict(seen.ends)}, {len(seen.other)} other", flush=True)
    await asyncio.gather(*open_ones)
    rest_until_s = time.monotonic() + REST_S
    while not seen.rested and time.monotonic() < rest_until_s:
        await tokens_of(one, 16, 1, None)  # vLLM refreshes its gauges after a step only
        await asyncio.sleep(0.5)
        seen.metrics = await metrics(one)
        seen.rested = not any(seen.metrics[name] for name in GAUGES)
    seen.deepest = max((entry["depth"] for entry in one.nestings()), default=0)
    return seen


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status."""
    parser = OneSentenceParser(
        prog="python -m bench.vllm_plugin_stress",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--folder", type=Path, default=Path("checkpoints/cpu_demo"), help="see `make checkpoint`")
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--gap-s", type=float, default=0.15, help="mean time between requests, while few are open")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="stress-") as made:
        folder = Path(made)
        (folder / "operator").mkdir()
        (folder / "metrics").mkdir()
        plan = Plan(given.folder, CONTEXT_TOKENS, CHUNK_TOKENS, 1, Cores(None, None), folder)
        flags = plugin_flags(
            "operator", folder / "operator" / LOG, executor="bench.vllm_plugin.failing_executor.FailingExecutor"
        )
        env = {"PROMETHEUS_MULTIPROC_DIR": str(folder / "metrics"), "PYTHONPATH": str(Path.cwd())}
        try:
            with server("operator", plan, CHUNK_TOKENS, KV_TOKENS, flags, env) as one:
                seen = asyncio.run(storm(one, 60 * given.minutes, given.seed, given.gap_s))
        except (NoEnvironmentError, ServerProcessError, ServerNotReadyError, OSError, RuntimeError) as error:
            print(f"vllm_plugin_stress: {error}", file=sys.stderr)
            return 2
    print(f"{given.minutes:g} minutes: {dict(seen.ends)}; deepest nesting {seen.deepest}")
    print(", ".join(f"{name} {value:g}" for name, value in seen.metrics.items()))
    wrong = seen.faults()
    for sentence in wrong:
        print(f"does not hold: {sentence}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(run_command(main))
