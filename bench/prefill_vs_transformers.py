"""Whole prefills: this engine against transformers' LlamaForCausalLM, same weights, same threads.

Both run in turn, one pair after the other, so that the machine's moods hit both alike. The ratio (transformers' time
over ours, above 1 = ours is faster) is given as a median of pairs with the interval of a bootstrap over pairs.
"""

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from engine.torch_backend.checkpoint import write_checkpoint
from engine.torch_backend.models.catalogue import load_model
from engine.torch_backend.profile import Bench


def transformers_model(folder: str, attention: str) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, attn_implementation=attention, dtype=torch.float32).eval()


def transformers_prefill(model: Any, tokens: int) -> Callable[[], None]:
    ids = (torch.arange(tokens) % model.config.vocab_size).unsqueeze(0)

    def run() -> None:
        model(ids, use_cache=True, logits_to_keep=1).logits[0, -1].argmax().item()

    return run


def seconds(run: Callable[[], object]) -> float:
    started_s = time.perf_counter()
    run()
    return time.perf_counter() - started_s


def pairs(ours: Callable[[], object], theirs: Callable[[], object], count: int) -> list[tuple[float, float]]:
    """(ours, theirs) in seconds; who goes first alternates."""
    ours(), theirs()
    measured: list[tuple[float, float]] = []
    for number in range(count):
        if number % 2:
            their_s = seconds(theirs)
            measured.append((seconds(ours), their_s))
        else:
            our_s = seconds(ours)
            measured.append((our_s, seconds(theirs)))
    return measured


def median_ratio(measured: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    """Median of theirs / ours, and a 95 % bootstrap interval of it."""
    ratios = [their_s / our_s for our_s, their_s in measured]
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(2000))
    return statistics.median(ratios), medians[50], medians[1949]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", default="checkpoints/cpu_demo", help="model folder; written first if it is absent")
    parser.add_argument("--tokens", type=int, nargs="+", default=[512, 2048, 4096])
    parser.add_argument("--attention", nargs="+", default=["eager", "sdpa"], help="transformers' attention")
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument(
        "--budget-s", type=float, default=600.0, help="fewer pairs where they would take longer than this in all"
    )
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    from pathlib import Path

    if not Path(given.folder).is_dir():
        write_checkpoint("cpu_demo", Path(given.folder))
    with torch.inference_mode():
        engine = Bench(load_model(given.folder), max(given.tokens))
        share_s = given.budget_s / len(given.attention) / len(given.tokens)
        slower = False
        for attention in given.attention:
            reference = transformers_model(given.folder, attention)
            for tokens in given.tokens:
                theirs = transformers_prefill(reference, tokens)

                def ours(tokens: int = tokens) -> None:
                    engine.prefill_s(tokens, 0)

                once_s = seconds(ours) + seconds(theirs)
                count = max(3, min(given.pairs, int(share_s / once_s) - 2))
                measured = pairs(ours, theirs, count)
                ratio, low, high = median_ratio(measured)
                our_ms, their_ms = (statistics.median(column) * 1e3 for column in zip(*measured, strict=True))
                slower |= low < 1
                print(
                    f"{tokens:5d} tokens, {attention:5s}: ours {our_ms:8.1f} ms, transformers {their_ms:8.1f} ms, "
                    f"ratio {ratio:.3f} [{low:.3f}, {high:.3f}], {count} pairs",
                    flush=True,
                )
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
