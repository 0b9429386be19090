"""What one core of the load client can do, and how far its TTFT is from the server's own instants.

python -m bench.client_rate. Client on one core, a fake server that answers at once in another process:
  1. rates with small and with 16 KB bodies, each with the verdict of a measured run; then doubled until it flips
  2. many streams open at once
  3. the client's TTFT against what the server saw, at 50 requests a second
Exit code 1 when a rate asked for is not VALID with a sender lag of at most 5 ms at p99, when a stream of the many
fails, or when the two TTFTs differ by more than 2 ms at p99.
"""

import argparse
import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence

from engine.core.clock import NS_PER_MS, NS_PER_S
from engine.core.command_line import OneSentenceParser, run_command
from engine.core.record import Status
from engine.core.slo import SLO
from engine.core.trace import PlannedRequest
from harness.loadgen.player import RunResult, play
from harness.loadgen.settings import PlayerSettings, ShowProgress, Target
from harness.loadgen.warmup import wait_until_ready
from harness.measurement.latency import quantile
from harness.measurement.verdict import Verdict, judge
from tests.fakes.golden_script import MODEL

SMALL_TOKENS, LARGE_TOKENS = 512, 3300
"""Prompts of about 2.5 and 16 KB of JSON."""
LAG_P99_MS = 5.0
APART_P99_MS = 2.0
HIGHEST_RPS = 6_400.0
RATE_TIMEOUT_S, STREAM_TIMEOUT_S = 2.0, 60.0
"""As many connections may be open at once as requests are sent within a time-out: short ones need fewer files."""


@contextlib.contextmanager
def fake_server(cpu: int | None, *words: str) -> Iterator[str]:
    """A golden server in a process of its own; gives its address."""
    command = [sys.executable, "-m", "tests.fakes.golden_server", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        if cpu is not None:
            os.sched_setaffinity(process.pid, {cpu})
        assert process.stdout is not None
        try:
            yield process.stdout.readline().removeprefix("listening on ").strip()
        finally:
            process.terminate()


def schedule(rate_rps: float, count: int, prompt_tokens: int, max_tokens: int = 1) -> list[PlannedRequest]:
    """`count` equal requests, evenly spaced."""
    prompt, slo = tuple(range(1, prompt_tokens + 1)), SLO(NS_PER_S // 4)
    return [
        PlannedRequest(f"r{i}", round(i * NS_PER_S / rate_rps), prompt, max_tokens, slo, "text") for i in range(count)
    ]


def measure(base_url: str, requests: Sequence[PlannedRequest], timeout_s: float) -> RunResult:
    """Play them once."""
    settings = PlayerSettings(request_timeout_s=timeout_s, drain_s=timeout_s, progress=ShowProgress.OFF)

    async def run() -> RunResult:
        target = Target(base_url, MODEL)
        await wait_until_ready(target, 20)
        return await play(requests, target, settings)

    return asyncio.run(run())


def rate(base_url: str, rate_rps: float, seconds: float, prompt_tokens: int) -> bool:
    """Print one rate's line; whether it is VALID and punctual."""
    requests = schedule(rate_rps, round(rate_rps * seconds), prompt_tokens)
    result = measure(base_url, requests, RATE_TIMEOUT_S)
    client, judgement = result.client, judge(result.records, result.client)
    tripped = ", ".join(check.name for check in judgement.tripped)
    ok = sum(record.status is Status.OK for record in result.records)
    print(
        f"{rate_rps:7.0f} req/s of {prompt_tokens:5d} tokens: {judgement.verdict}{f' ({tripped})' if tripped else ''}, "
        f"sent {client.sent_rps:.1f}/s, ok {ok}/{client.requests_due}, sender lag p50 "
        f"{client.sender_lag_p50_ns / NS_PER_MS:.2f} p99 {client.sender_lag_p99_ns / NS_PER_MS:.2f} ms, loop lag p99 "
        f"{client.loop_lag_p99_ns / NS_PER_MS:.2f} ms, CPU {client.cpu_share:.0%}"
    )
    return judgement.verdict is Verdict.VALID and client.sender_lag_p99_ns <= LAG_P99_MS * NS_PER_MS


def until_it_flips(base_url: str, from_rps: float, seconds: float, prompt_tokens: int) -> None:
    """Double the rate until the verdict says that the client was the bottleneck."""
    rate_rps = 2 * from_rps
    while rate_rps <= HIGHEST_RPS and rate(base_url, rate_rps, seconds, prompt_tokens):
        rate_rps *= 2


def streams(count: int, cpu: int | None) -> bool:
    """Open `count` streams within five seconds, all of them open at once; whether each came to its end."""
    with fake_server(cpu, "--mode", "complete", "--ttft-s", "8", "--gap-s", "0.2") as base_url:
        result = measure(base_url, schedule(count / 5, count, 16, max_tokens=5), STREAM_TIMEOUT_S)
    ok = sum(record.status is Status.OK for record in result.records)
    print(f"{count} streams at once: {ok} whole, {count - ok} not")
    return ok == count


def apart(seconds: float, cpu: int | None) -> bool:
    """TTFT by the client, from the due instant, minus the server's own, from the request's arrival to its token.

    The fake states the latter, in nanoseconds, where a server states its cached tokens: the record keeps that number.
    """
    with fake_server(cpu, "--mode", "stamped") as base_url:
        result = measure(base_url, schedule(50, round(50 * seconds), SMALL_TOKENS), RATE_TIMEOUT_S)
    apart_ms = [
        (record.first_token_at_ns - record.due_at_ns - record.cached_tokens) / NS_PER_MS
        for record in result.records
        if record.first_token_at_ns is not None and record.cached_tokens is not None
    ]
    p50, p99 = quantile(apart_ms, 0.5), quantile(apart_ms, 0.99)
    if p50 is None or p99 is None:
        print(result.total_failure())
        return False
    print(f"TTFT of client and server at 50 req/s: {p50:.2f} ms apart at p50, {p99:.2f} at p99 (n = {len(apart_ms)})")
    return p99 <= APART_P99_MS


def main() -> int:
    """The command."""
    parser = OneSentenceParser(
        prog="python -m bench.client_rate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rates", type=float, nargs="+", default=[400.0, 800.0], help="of small bodies")
    parser.add_argument("--large-rates", type=float, nargs="+", default=[400.0], help="of 16 KB bodies")
    parser.add_argument("--streams", type=int, default=5000)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    given = parser.parse_args()
    cpus = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_setaffinity") else []
    others = cpus[-1] if len(cpus) > 1 else None
    if cpus:
        os.sched_setaffinity(0, {cpus[0]})
    held = True
    with fake_server(others, "--mode", "noop") as base_url:
        for prompt_tokens, rates in ((SMALL_TOKENS, given.rates), (LARGE_TOKENS, given.large_rates)):
            for rate_rps in rates:
                held &= rate(base_url, rate_rps, given.seconds, prompt_tokens)
            until_it_flips(base_url, max(rates), given.seconds, prompt_tokens)
    held &= streams(given.streams, others)
    held &= apart(2 * given.seconds, others)
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(run_command(main))
