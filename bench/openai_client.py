"""The `openai` package as a load client, in an environment that has it: Poisson arrivals, TTFT by hand.

Arguments: ids or text, base URL, model, requests per second, requests, tokens of a prompt (of a text: about as many),
tokens to give. Prints a JSON list: each request's seconds to its first chunk with a choice.
"""

import asyncio
import json
import random
import sys
import time

import openai

WORDS = (
    "time",
    "people",
    "way",
    "water",
    "word",
    "day",
    "part",
    "number",
    "sound",
    "work",
    "place",
    "year",
    "sentence",
)
TOKENS_OF_A_WORD = 2
"""With the tokenizer of `make checkpoint`, which knows few words."""


async def ttft_s(client: openai.AsyncOpenAI, model: str, prompt: list[int] | str, max_tokens: int) -> float:
    started_s = time.perf_counter()
    stream = await client.completions.create(
        model=model, prompt=prompt, max_tokens=max_tokens, stream=True, extra_body={"ignore_eos": True}
    )
    first_s = 0.0
    async for chunk in stream:
        if chunk.choices and not first_s:
            first_s = time.perf_counter() - started_s
    return first_s


def make_prompt(kind: str, tokens: int, draw: random.Random) -> list[int] | str:
    if kind == "ids":
        return [draw.randrange(16, 4096) for _ in range(tokens)]
    return " ".join(draw.choices(WORDS, k=tokens // TOKENS_OF_A_WORD))


async def main(kind: str, base_url: str, model: str, rate_rps: float, count: int, tokens: int, max_tokens: int) -> None:
    draw = random.Random(0)
    prompts = [make_prompt(kind, tokens, draw) for _ in range(count)]
    async with openai.AsyncOpenAI(base_url=f"{base_url}/v1", api_key="none", max_retries=0, timeout=120) as client:
        open_requests = []
        for prompt in prompts:
            open_requests.append(asyncio.create_task(ttft_s(client, model, prompt, max_tokens)))
            await asyncio.sleep(draw.expovariate(rate_rps))
        print(json.dumps(await asyncio.gather(*open_requests)))


if __name__ == "__main__":
    ids_or_text, url, name, rate, *counts = sys.argv[1:]
    asyncio.run(main(ids_or_text, url, name, float(rate), *map(int, counts)))
