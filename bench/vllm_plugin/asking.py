"""One request to a server and when it was sent and answered."""

import asyncio
import random
import time
from dataclasses import dataclass
from typing import Any

import aiohttp

from bench.vllm_plugin.servers import STOCK, Server

LONG_SLO_S, SHORT_SLO_S = 300.0, 60.0
"""TTFT SLOs that are always met: order is by deadline, and the short one is the more urgent."""
VOCAB = (5, 4000)


@dataclass(frozen=True, slots=True)
class Answer:
    """request_id: as vLLM gave it; its scheduler's ids begin with it. Instants are those of CLOCK_MONOTONIC."""

    request_id: str
    sent_at_ns: int
    answered_at_ns: int

    @property
    def seconds(self) -> float:
        """From sending to the whole answer."""
        return (self.answered_at_ns - self.sent_at_ns) / 1e9


def prompt_of(tokens: int) -> list[int]:
    """The same for the same length."""
    drawn = random.Random(tokens)
    return [drawn.randrange(*VOCAB) for _ in range(tokens)]


async def ask(
    server: Server, tokens: int, *, slo_s: float = LONG_SLO_S, output: int = 1, delay_s: float = 0.0
) -> Answer:
    """A prompt of so many tokens, answered whole. Raises ValueError for any other answer."""
    await asyncio.sleep(delay_s)
    body: dict[str, Any] = {
        "model": server.model, "prompt": prompt_of(tokens), "max_tokens": output, "temperature": 0, "ignore_eos": True,
    }  # fmt: skip
    if server.name != STOCK:
        body["vllm_xargs"] = {"ttft_slo": slo_s}
    connector = aiohttp.TCPConnector(force_close=True)
    timeout = aiohttp.ClientTimeout(total=600)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        sent = time.monotonic_ns()
        async with session.post(f"{server.url}/v1/completions", json=body) as response:
            answer = await response.json()
        answered = time.monotonic_ns()
    if response.status != 200 or answer["usage"]["completion_tokens"] != output:
        raise ValueError(f"{server.name}: HTTP {response.status}: {str(answer)[:200]}")
    return Answer(answer["id"], sent, answered)


async def short_ones_behind(
    server: Server, long_tokens: int, short_tokens: int, delays_s: list[float]
) -> tuple[Answer, list[Answer]]:
    """A long prompt, and a more urgent short one so many seconds after it for each delay."""
    long = asyncio.ensure_future(ask(server, long_tokens))
    shorts = await asyncio.gather(*(ask(server, short_tokens, slo_s=SHORT_SLO_S, delay_s=s) for s in delays_s))
    return await long, list(shorts)
