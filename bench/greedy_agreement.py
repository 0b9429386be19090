"""Greedy outputs of running servers against transformers', token by token, on one checkpoint.

python -m bench.greedy_agreement --server vllm=http://127.0.0.1:8000 --server ours=http://127.0.0.1:8001 ...

Each server serves --folder, in float32. A first difference counts as a tie where transformers' two best logits lie
within --tie of each other: floating point decides there, and what follows is no longer comparable. Exit code 1 when any
other difference is found, or when a server fails.
"""

import argparse
import json
import sys
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bench.prefill_vs_transformers import transformers_model
from engine.core.command_line import OneSentenceParser, run_command
from workloads.prompts import PromptSettings, make_prompts

REQUEST_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class Reference:
    """transformers' tokens; margins: between the best and the second logit of each; seconds: the second best token."""

    tokens: list[int]
    margins: list[float]
    seconds: list[int]


def lengths(count: int, longest: int) -> list[int]:
    """From 1 to `longest` in equal ratios."""
    return [round(longest ** (i / (count - 1))) for i in range(count)]


def reference(model: Any, prompt: tuple[int, ...], tokens: int) -> Reference:
    ids, cache = torch.tensor([prompt]), None
    found, margins, seconds = [], [], []
    for _ in range(tokens):
        out = model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
        cache = out.past_key_values
        best = out.logits[0, -1].topk(2)
        found.append(int(best.indices[0]))
        seconds.append(int(best.indices[1]))
        margins.append(float(best.values[0] - best.values[1]))
        ids = best.indices[:1].unsqueeze(0)
    return Reference(found, margins, seconds)


def completed(base_url: str, served_model: str, prompt: tuple[int, ...], tokens: int) -> list[int]:
    body = {
        "model": served_model,
        "prompt": list(prompt),
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "return_token_ids": True,
    }
    request = urllib.request.Request(
        f"{base_url.rstrip('/').removesuffix('/v1')}/v1/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=REQUEST_TIMEOUT_S) as response:
        choice = json.load(response)["choices"][0]
    if not isinstance(choice.get("token_ids"), list):
        raise ValueError("the server does not tell its token ids (return_token_ids)")
    return [int(token) for token in choice["token_ids"]]


def first_difference(expected: list[int], got: list[int]) -> int | None:
    """Position of the first difference, a missing token included; None = equal."""
    for at, token in enumerate(expected):
        if at >= len(got) or got[at] != token:
            return at
    return None if len(got) == len(expected) else len(expected)


def compare(
    name: str, prompts: list[tuple[int, ...]], references: list[Reference], given: argparse.Namespace, url: str
) -> bool:
    """Print how a server's outputs compare; whether every difference is a tie."""
    equal, ties, others = 0, 0, 0
    for prompt, expected in zip(prompts, references, strict=True):
        got = completed(url, given.served_model, prompt, given.tokens)
        at = first_difference(expected.tokens, got)
        if at is None:
            equal += 1
            continue
        margin = expected.margins[at] if at < len(expected.margins) else float("inf")
        tie = margin <= given.tie and at < len(got) and got[at] == expected.seconds[at]
        ties, others = ties + tie, others + (not tie)
        print(
            f"  {name}: prompt of {len(prompt)} tokens, output token {at}: {'a tie' if tie else 'DIFFERENT'}, "
            f"transformers' two best logits are {margin:.2g} apart",
            flush=True,
        )
    print(f"{name}: {equal} of {len(prompts)} outputs equal, {ties} parted at a tie, {others} otherwise", flush=True)
    return others == 0


def main() -> int:
    parser = OneSentenceParser(
        prog="python -m bench.greedy_agreement",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--server", action="append", required=True, metavar="NAME=URL", help="can be given often")
    parser.add_argument("--folder", type=Path, default=Path("checkpoints/cpu_demo"), help="what all of them serve")
    parser.add_argument("--served-model", default="cpu_demo", help="the name the servers know it by")
    parser.add_argument("--prompts", type=int, default=50)
    parser.add_argument("--longest", type=int, default=4096)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--tie", type=float, default=1e-3, help="logits this close are a tie (default 1e-3)")
    given = parser.parse_args()
    torch.set_num_threads(1)
    model = transformers_model(given.folder, "sdpa")
    prompts = make_prompts(lengths(given.prompts, given.longest), PromptSettings(model.config.vocab_size), seed=0)
    with torch.inference_mode():
        references = [reference(model, prompt, given.tokens) for prompt in prompts]
    closest = min(margin for expected in references for margin in expected.margins)
    print(
        f"transformers: {len(prompts)} outputs of {given.tokens} tokens; closest two logits {closest:.2g}", flush=True
    )
    agree = True
    for server in given.server:
        name, _, url = server.partition("=")
        try:
            agree &= compare(name, prompts, references, given, url)
        except (OSError, ValueError, LookupError) as error:
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
            agree = False
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(run_command(main))
