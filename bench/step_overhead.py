"""What a step of chunked prefill costs beyond its share of the work: the same prompt in chunks and whole, in turn.

python -m bench.step_overhead. The extra time of a chunk size is (chunked - whole) / (chunks - 1), in milliseconds:
planning a program, the operators' fixed costs, weights read again, earlier keys and values read again. The scheduler's
own round comes on top (bench.scheduling_call).
"""

import argparse
import random
import statistics
import sys
from collections.abc import Callable

import torch

from bench.paired_ratio import Pair, interleaved_pairs, median_ratio
from engine.core.command_line import OneSentenceParser, run_command
from engine.model.granularity import Granularity
from engine.torch_backend.models.catalogue import load_model
from engine.torch_backend.profiling import Bench


def extra_ms(measured: list[Pair], steps: int) -> tuple[float, float, float]:
    """Median extra milliseconds of a step over the pairs (chunked, whole), and its 95 % bootstrap interval."""
    extra = [(chunked_s - whole_s) / (steps - 1) * 1e3 for chunked_s, whole_s in measured]
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(extra, k=len(extra))) for _ in range(2000))
    return statistics.median(extra), medians[50], medians[1949]


def main() -> int:
    parser = OneSentenceParser(
        prog="python -m bench.step_overhead", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="cpu_demo")
    parser.add_argument("--tokens", type=int, default=1024, help="prompt, tokens as sent")
    parser.add_argument("--chunks", type=int, nargs="+", default=[64, 128, 256, 512], help="tokens of a chunk, as sent")
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    with torch.inference_mode():
        bench = Bench(load_model(given.model), given.tokens, Granularity.NONE)
        whole = bench.prefill(given.tokens, 0)
        for chunk in given.chunks:
            steps = [bench.prefill(min(chunk, given.tokens - at), at) for at in range(0, given.tokens, chunk)]

            def chunked(steps: list[Callable[[], None]] = steps) -> None:
                for step in steps:
                    step()

            measured = interleaved_pairs(chunked, whole, given.pairs)
            kept, low, high = median_ratio(measured)
            extra, extra_low, extra_high = extra_ms(measured, len(steps))
            print(
                f"{given.tokens} tokens in {len(steps)} chunks of {chunk}: throughput kept {kept:.3f} "
                f"[{low:.3f}, {high:.3f}], extra per step {extra:.2f} ms [{extra_low:.2f}, {extra_high:.2f}], "
                f"{given.pairs} pairs",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main))
