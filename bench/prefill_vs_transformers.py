"""Whole prefills: this engine against transformers' model of each architecture, same weights, same threads.

python -m bench.prefill_vs_transformers. The ratio is transformers' time over ours, above 1 = ours is faster; exit code
1 when the lower end of its interval is below 1 anywhere. Both return the logits of the last token only. With --kernel
sdpa and --attention sdpa both sides call the same attention kernel of torch; with --kernel auto ours is the one the
engine takes by itself, which the line names.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from bench.families import FAMILIES
from bench.paired_ratio import interleaved_pairs, median_ratio, medians_ms, seconds
from engine.core.command_line import OneSentenceParser, run_command
from engine.torch_backend.attention_choice import ATTENTIONS
from engine.torch_backend.checkpoint_folder import write_checkpoint
from engine.torch_backend.models.catalogue import load_model
from engine.torch_backend.profiling import Bench


def transformers_model(folder: Path, attention: str) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, attn_implementation=attention, dtype=torch.float32).eval()


def transformers_prefill(model: Any, tokens: int) -> Callable[[], None]:
    ids = (torch.arange(tokens) % model.config.vocab_size).unsqueeze(0)

    def run() -> None:
        model(ids, use_cache=True, logits_to_keep=1).logits[0, -1].argmax().item()

    return run


def main() -> int:
    parser = OneSentenceParser(
        prog="python -m bench.prefill_vs_transformers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", nargs="+", default=FAMILIES, help="one of each architecture")
    parser.add_argument("--folder", type=Path, default=Path("checkpoints"), help="models absent there are written")
    parser.add_argument("--tokens", type=int, nargs="+", default=[512, 2048, 4096])
    parser.add_argument("--kernel", nargs="+", choices=ATTENTIONS, default=["sdpa", "auto"], help="our attention")
    parser.add_argument("--attention", nargs="+", default=["sdpa"], help="transformers' attention: sdpa, eager")
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument(
        "--budget-s", type=float, default=600.0, help="fewer pairs where they take longer than this in all"
    )
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    slower = False
    with torch.inference_mode():
        for name in given.model:
            folder = given.folder / name
            if not folder.is_dir():
                write_checkpoint(name, folder)
            for kernel in given.kernel:
                slower |= _compare(folder, kernel, given)
    return 1 if slower else 0


def _compare(folder: Path, kernel: str, given: argparse.Namespace) -> bool:
    """Print the ratios of one model; whether transformers may be faster anywhere."""
    model = load_model(str(folder), attention=kernel)
    engine = Bench(model, max(given.tokens))
    share_s = given.budget_s / len(given.model) / len(given.kernel) / len(given.attention) / len(given.tokens)
    slower = False
    for attention in given.attention:
        reference = transformers_model(folder, attention)
        for tokens in given.tokens:
            ours = engine.prefill(tokens, 0)
            theirs = transformers_prefill(reference, tokens)
            count = max(3, min(given.pairs, int(share_s / (seconds(ours) + seconds(theirs))) - 2))
            measured = interleaved_pairs(ours, theirs, count)
            ratio, low, high = median_ratio(measured)
            our_ms, their_ms = medians_ms(measured)
            slower |= low < 1
            print(
                f"{folder.name}, {tokens:5d} tokens: ours ({model.attention_kernel.name}) {our_ms:8.1f} ms, "
                f"transformers ({attention}) {their_ms:8.1f} ms, ratio {ratio:.3f} [{low:.3f}, {high:.3f}], "
                f"{count} pairs",
                flush=True,
            )
    return slower


if __name__ == "__main__":
    sys.exit(run_command(main))
