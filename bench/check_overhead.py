"""Throughput without preemption: a check of the gate at every operator (or tile) against none at all.

python -m bench.check_overhead. The ratio is the time without checks over the time with them, which is the throughput
kept: the median over balanced pairs of prefills (ABBA) in the same memory, with a bootstrap interval. `tile` also pays
for its splits. A single check is timed too, and what all checks of a prefill come to: far less than the ratio resolves.
Exit code 1 when the lower end is below --at-least at granularity operator.
"""

import argparse
import sys

import torch

from bench.families import FAMILIES
from bench.paired_ratio import balanced_pairs, median_ratio, medians_ms, seconds
from engine.core.command_line import OneSentenceParser, run_command
from engine.model.granularity import Granularity
from engine.torch_backend.gate import Gate
from engine.torch_backend.models.catalogue import load_model
from engine.torch_backend.profiling import Bench
from engine.torch_backend.program import Operator, Program


def check_ns(checks: int = 200_000) -> float:
    """Nanoseconds of one check: a program of empty operators with a check before each, less the same without."""
    empty = {boundary: [Operator("empty", lambda: None, boundary, 0)] * checks for boundary in (False, True)}
    fastest = {
        boundary: min(seconds(lambda steps=steps: Program(steps, state=None).run(Gate())) for _ in range(5))
        for boundary, steps in empty.items()
    }
    return (fastest[True] - fastest[False]) / checks * 1e9


def main() -> int:
    parser = OneSentenceParser(
        prog="python -m bench.check_overhead", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", nargs="+", default=FAMILIES, help="one of each architecture")
    parser.add_argument("--tokens", type=int, nargs="+", default=[64, 512, 2048])
    parser.add_argument(
        "--granularity", nargs="+", default=["operator", "tile"], choices=[g.value for g in Granularity]
    )
    parser.add_argument("--pairs", type=int, default=20, help="pairs of each length, at least: two prefills each way")
    parser.add_argument("--seconds", type=float, default=20.0, help="more pairs until a length has taken this long")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--at-least", type=float, default=0.99)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    one_check_ns = check_ns()
    print(f"one check: {one_check_ns:.0f} ns")
    too_slow = False
    with torch.inference_mode():
        for name in given.model:
            too_slow |= _compare(name, one_check_ns, given)
    return 1 if too_slow else 0


def _compare(name: str, one_check_ns: float, given: argparse.Namespace) -> bool:
    """Print the ratios of one model; whether operator granularity costs too much anywhere."""
    # One bench for both: two caches lie at other addresses, which alone can cost half a per cent.
    bench = Bench(load_model(name), max(given.tokens))
    too_slow = False
    for granularity in map(Granularity, given.granularity):
        for tokens in given.tokens:
            with_checks, without = bench.prefill(tokens, 0, granularity), bench.prefill(tokens, 0, Granularity.NONE)
            with_checks()
            count = max(given.pairs, int(given.seconds / (2 * seconds(with_checks) + 2 * seconds(without))))
            measured = balanced_pairs(with_checks, without, count)
            ratio, low, high = median_ratio(measured)
            with_ms, without_ms = (both / 2 for both in medians_ms(measured))
            checks = sum(operator.boundary for operator in bench.program(tokens, 0, granularity).operators)
            too_slow |= granularity is Granularity.OPERATOR and low < given.at_least
            print(
                f"{name}, {tokens:5d} tokens, {granularity}: with checks {with_ms:8.2f} ms, without {without_ms:8.2f} "
                f"ms, throughput kept {ratio:.4f} [{low:.4f}, {high:.4f}], {count} pairs; {checks} checks are "
                f"{checks * one_check_ns / (without_ms * 1e6):.1e} of it",
                flush=True,
            )
    return too_slow


if __name__ == "__main__":
    sys.exit(run_command(main))
