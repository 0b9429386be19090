"""A server under twice the load it can carry, with clients that leave at random: does anything leak?

    python -m bench.soak [--seconds 600] [--model cpu_tiny] [--overload 2] [--seed 0]

Measures what the server carries, sends a burst and Poisson arrivals at a multiple of that, and closes a third of the
connections at random moments. Then everything must be back: KV blocks, activation bytes, open requests, descriptors.
Resident memory of both processes must stay within 5 % after the warm-up. Prints a table; exit status 1 when something
does not hold.
"""

import argparse
import asyncio
import random
import re
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from engine.core.command_line import OneSentenceParser, run_command

WARM_UP_SHARE = 0.25
"""Of the time: memory is compared after it."""
MOST_GROWTH = 0.05
CALIBRATION_CLIENTS = 16
ABORT_SHARE = 1 / 3
PATIENCE_S = 120.0
QUEUE = 128
BURST = 3 * QUEUE
"""Requests sent at once at first: some are refused, whatever the machine carried while it was measured."""
SERVER_FLAGS = ("--port", "0", "--kv-blocks", "300", "--max-queue", f"{QUEUE}", "--watchdog-s", "60")


@dataclass(frozen=True)
class Sizes:
    """Prompt and output tokens are drawn between these, on a logarithmic scale."""

    least_prompt: int = 8
    most_prompt: int = 900
    most_output: int = 24


@dataclass
class Soak:
    """What was seen. memory: seconds since the overload began, resident bytes by process."""

    carried_rps: float = 0.0
    asked_rps: float = 0.0
    sent: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    states: Counter[str] = field(default_factory=Counter)
    memory: list[tuple[float, dict[str, int]]] = field(default_factory=list)
    before: dict[str, int] = field(default_factory=dict)
    after: dict[str, int] = field(default_factory=dict)
    report: dict[str, Any] = field(default_factory=dict)

    def growth(self, process: str) -> float:
        """Resident memory at the end over that after the warm-up, less one: medians of a quarter of the time each."""
        span_s = self.memory[-1][0]
        first, last = WARM_UP_SHARE * span_s, (1 - WARM_UP_SHARE) * span_s
        early = [held[process] for at_s, held in self.memory if first <= at_s < 2 * first]
        late = [held[process] for at_s, held in self.memory if at_s >= last]
        return statistics.median(late) / statistics.median(early) - 1

    def faults(self) -> list[str]:
        """What does not hold, one sentence each."""
        found = [
            f"{name}: {self.before[name]} before, {self.after[name]} after"
            for name in self.before
            if self.before[name] != self.after[name]
        ]
        found += [f"the {p} process grew by {self.growth(p):.1%}" for p in ("HTTP", "engine") if self.grew(p)]
        allowed = {"whole", "left", "503"}
        found += [f"{count} requests ended with {end}" for end, count in self.ends.items() if end not in allowed]
        found += [f"no request was {state}" for state in ("waiting", "preempted", "decoding") if not self.states[state]]
        found += [f"no request ended with {end}" for end in sorted(allowed) if not self.ends[end]]
        return found

    def grew(self, process: str) -> bool:
        """Whether a process holds more than it may. Shrinking is no leak."""
        return self.growth(process) > MOST_GROWTH


@contextmanager
def server(model: str) -> Iterator[tuple[int, str]]:
    """Process id and URL of a server that is ready."""
    command = [sys.executable, "-m", "engine.serving.server", "--model", model, *SERVER_FLAGS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"at (http://\S+)", process.stdout.readline())
            if found is None:
                raise RuntimeError("the server did not start")
            yield process.pid, found[1]
        finally:
            process.terminate()


class Clients:
    """Requests of random sizes against one server."""

    def __init__(self, session: aiohttp.ClientSession, url: str, draw: random.Random, sizes: Sizes) -> None:
        self._session, self._url, self._draw, self._sizes = session, url, draw, sizes
        self.ends: Counter[str] = Counter()

    async def one(self, leaves_after_s: float | None) -> None:
        """A request; its client leaves after so long."""
        body = self._body()
        with suppress(TimeoutError):
            async with asyncio.timeout(leaves_after_s):
                self.ends[await self._send(body)] += 1
                return
        self.ends["left"] += 1

    def leaves_after_s(self) -> float | None:
        """When the next client leaves; None: it stays."""
        return self._draw.expovariate(1.0) if self._draw.random() < ABORT_SHARE else None

    async def _send(self, body: dict[str, Any]) -> str:
        try:
            async with self._session.post(f"{self._url}/v1/completions", json=body) as response:
                content = await response.read()
        except aiohttp.ClientError as error:
            return type(error).__name__
        if response.status != 200:
            return str(response.status)
        return "whole" if not body["stream"] or content.endswith(b"data: [DONE]\n\n") else "cut"

    def _body(self) -> dict[str, Any]:
        draw, sizes = self._draw, self._sizes
        tokens = round(sizes.least_prompt * (sizes.most_prompt / sizes.least_prompt) ** draw.random())
        return {
            "prompt": [draw.randrange(2, 500)] * tokens,
            "max_tokens": draw.randint(1, sizes.most_output),
            "ignore_eos": True,
            "temperature": draw.choice((0, 1)),
            "stream": draw.random() < 0.5,
            "ttft_slo_s": draw.choice((None, 0.01, 0.2, 2.0, 20.0)),
        }


async def carried_rps(clients: Clients, seconds: float) -> float:
    """Requests a second that the server carries when as many clients as fit ask one after the other."""
    end_s = time.monotonic() + seconds

    async def ask_on() -> int:
        count = 0
        while time.monotonic() < end_s:
            await clients.one(None)
            count += 1
        return count

    counts = await asyncio.gather(*(ask_on() for _ in range(CALIBRATION_CLIENTS)))
    return sum(counts) / seconds


async def overload(clients: Clients, rate_rps: float, seconds: float, draw: random.Random) -> int:
    """A burst, then Poisson arrivals for so long; returns once all have ended. How many were sent."""
    loop = asyncio.get_running_loop()
    begun_at_s = due_at_s = loop.time()
    open_requests: set[asyncio.Task[None]] = set()

    def send() -> None:
        task = asyncio.create_task(clients.one(clients.leaves_after_s()))
        open_requests.add(task)
        task.add_done_callback(open_requests.discard)

    sent = BURST
    for _ in range(BURST):
        send()
    while (due_at_s := due_at_s + draw.expovariate(rate_rps)) < begun_at_s + seconds:
        await asyncio.sleep(due_at_s - loop.time())
        send()
        sent += 1
    await asyncio.gather(*open_requests)
    return sent


async def soak(model: str, seconds: float, multiple: float, seed: int) -> Soak:
    """Run it. model: a name the server knows."""
    draw, seen = random.Random(seed), Soak()
    with server(model) as (pid, url):
        pids = {"HTTP": pid, "engine": _child_of(pid)}
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=600)) as session:
            clients = Clients(session, url, draw, Sizes())
            seen.carried_rps = await carried_rps(clients, max(2.0, 0.05 * seconds))
            seen.asked_rps = multiple * seen.carried_rps
            seen.before = await at_rest(session, url, pids)
            clients.ends.clear()
            watching = asyncio.create_task(watch(session, url, pids, seen))
            seen.sent = await overload(clients, seen.asked_rps, seconds, draw)
            watching.cancel()
            seen.ends = clients.ends
            seen.after = await at_rest(session, url, pids, seen.before)
            async with session.get(f"{url}/report") as response:
                seen.report = await response.json()
    return seen


async def watch(session: aiohttp.ClientSession, url: str, pids: dict[str, int], seen: Soak) -> None:
    """Look at memory and state until cancelled."""
    begun_at_s = time.monotonic()
    while True:
        seen.memory.append((time.monotonic() - begun_at_s, {name: _resident(pid) for name, pid in pids.items()}))
        async with session.get(f"{url}/state") as response:
            state = await response.json()
        seen.states.update(name for name in ("waiting", "executing", "preempted", "decoding") if state[name])
        await asyncio.sleep(0.2)


async def at_rest(
    session: aiohttp.ClientSession, url: str, pids: dict[str, int], like: dict[str, int] | None = None
) -> dict[str, int]:
    """What the server holds once nothing is open any more (and it is as `like`), or after a while of patience."""
    end_s = time.monotonic() + PATIENCE_S
    while True:
        async with session.get(f"{url}/state") as response:
            held: dict[str, int] = await response.json()
        at_rest = not held["open_requests"] and held["kv_blocks_free"] == held["kv_blocks_total"]
        held |= {f"descriptors of the {name} process": _descriptors(pid) for name, pid in pids.items()}
        if (at_rest and like in (None, held)) or time.monotonic() > end_s:
            return held
        await asyncio.sleep(0.1)


def _child_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def _resident(pid: int) -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def _descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def main() -> int:
    parser = OneSentenceParser(
        prog="python -m bench.soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--model", default="cpu_tiny")
    parser.add_argument("--overload", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    seen = asyncio.run(soak(given.model, given.seconds, given.overload, given.seed))
    print(f"carried {seen.carried_rps:.1f} req/s, asked {seen.asked_rps:.1f} req/s for {given.seconds:g} s")
    print(f"sent {seen.sent}: {', '.join(f'{count} {end}' for end, count in sorted(seen.ends.items()))}")
    for name in ("completed_requests", "cancelled_requests", "failed_requests", "rejected", "preemptions"):
        print(f"{name}: {seen.report[name]}")
    for process in ("HTTP", "engine"):
        held = [each[process] / 1e6 for _, each in seen.memory]
        print(f"{process} process: {held[0]:.1f} MB, {max(held):.1f} MB at most, growth {seen.growth(process):+.2%}")
    print(f"after: {seen.after}")
    for fault in seen.faults():
        print(f"soak: {fault}", file=sys.stderr)
    return 1 if seen.faults() else 0


if __name__ == "__main__":
    sys.exit(run_command(main))
