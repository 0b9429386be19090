"""How fast and how punctual the load client is: one core, against a no-op server in another process.

    python -m bench.client_rate [--rates 400 800] [--seconds 5] [--prompt-tokens 512]

Prints one line per rate: the rate sent, sender lag, loop lag and CPU share.
"""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

from engine.core.command_line import OneSentenceParser
from engine.core.record import Status
from engine.core.slo import SLO
from engine.core.trace import PlannedRequest
from harness.loadgen.player import RunResult, play
from harness.loadgen.settings import PlayerSettings, ShowProgress, Target
from harness.loadgen.warmup import wait_until_ready
from tests.fakes.golden_script import MODEL


@contextlib.contextmanager
def noop_server(cpu: int | None) -> Iterator[str]:
    command = [sys.executable, "-m", "tests.fakes.golden_server", "--mode", "noop"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        if cpu is not None:
            os.sched_setaffinity(process.pid, {cpu})
        assert process.stdout is not None
        try:
            yield process.stdout.readline().removeprefix("listening on ").strip()
        finally:
            process.terminate()


def schedule(rate_rps: float, seconds: float, prompt_tokens: int) -> list[PlannedRequest]:
    prompt = tuple(range(1, prompt_tokens + 1))
    count = round(rate_rps * seconds)
    return [
        PlannedRequest(f"r{i}", round(i * 1e9 / rate_rps), prompt, 1, SLO(250_000_000), "text") for i in range(count)
    ]


async def measure(base_url: str, rate_rps: float, seconds: float, prompt_tokens: int) -> RunResult:
    target = Target(base_url, MODEL)
    await wait_until_ready(target, 10)
    settings = PlayerSettings(request_timeout_s=10, drain_s=5, progress=ShowProgress.OFF)
    return await play(schedule(rate_rps, seconds, prompt_tokens), target, settings)


def main() -> None:
    parser = OneSentenceParser(
        prog="python -m bench.client_rate",
        description="Rate and punctuality of the load client against a no-op server.",
    )
    parser.add_argument("--rates", type=float, nargs="+", default=[400.0, 800.0])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--prompt-tokens", type=int, default=512)
    arguments = parser.parse_args()
    cpus = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_setaffinity") else []
    if cpus:
        os.sched_setaffinity(0, {cpus[0]})
    with noop_server(cpus[-1] if len(cpus) > 1 else None) as base_url:
        for rate_rps in arguments.rates:
            result = asyncio.run(measure(base_url, rate_rps, arguments.seconds, arguments.prompt_tokens))
            client = result.client
            ok = sum(record.status is Status.OK for record in result.records)
            ttft_ms = sorted(
                (record.first_token_at_ns - record.due_at_ns) / 1e6
                for record in result.records
                if record.first_token_at_ns is not None
            )
            print(
                f"asked {client.asked_rps:.1f} rps, sent {client.sent_rps:.1f} rps, ok {ok}/{client.requests_due}, "
                f"sender lag p50 {client.sender_lag_p50_ns / 1e6:.2f} p99 {client.sender_lag_p99_ns / 1e6:.2f} "
                f"max {client.sender_lag_max_ns / 1e6:.2f} ms, loop lag p99 {client.loop_lag_p99_ns / 1e6:.2f} ms, "
                f"CPU {client.cpu_share:.0%}, TTFT p50 {ttft_ms[len(ttft_ms) // 2]:.2f} ms"
                if ttft_ms
                else f"asked {client.asked_rps:.1f} rps: {result.total_failure()}"
            )


if __name__ == "__main__":
    main()
