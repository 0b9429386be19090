"""The `openai` package as a load client, in an environment that has it: Poisson arrivals, TTFT by hand.

Arguments: base URL, model, requests per second, requests, tokens of a prompt, tokens to give. Prints a JSON list: each
request's seconds to its first chunk with a choice.
"""

import asyncio
import json
import random
import sys
import time

import openai


async def ttft_s(client: openai.AsyncOpenAI, model: str, prompt: list[int], max_tokens: int) -> float:
    started_s = time.perf_counter()
    stream = await client.completions.create(
        model=model, prompt=prompt, max_tokens=max_tokens, stream=True, extra_body={"ignore_eos": True}
    )
    first_s = 0.0
    async for chunk in stream:
        if chunk.choices and not first_s:
            first_s = time.perf_counter() - started_s
    return first_s


async def main(base_url: str, model: str, rate_rps: float, count: int, tokens: int, max_tokens: int) -> None:
    draw = random.Random(0)
    prompts = [[draw.randrange(16, 4096) for _ in range(tokens)] for _ in range(count)]
    async with openai.AsyncOpenAI(base_url=f"{base_url}/v1", api_key="none", max_retries=0, timeout=120) as client:
        open_requests = []
        for prompt in prompts:
            open_requests.append(asyncio.create_task(ttft_s(client, model, prompt, max_tokens)))
            await asyncio.sleep(draw.expovariate(rate_rps))
        print(json.dumps(await asyncio.gather(*open_requests)))


if __name__ == "__main__":
    url, name, rate, *counts = sys.argv[1:]
    asyncio.run(main(url, name, float(rate), *map(int, counts)))
