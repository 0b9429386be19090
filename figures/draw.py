"""Redraw the figures from results: `python -m figures.draw [NAME ...]`; `--check` compares rows instead of drawing."""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from engine.core.command_line import MISTAKE_STATUS, OneSentenceParser, run_command

COMPARISONS = ("goodput_vs_rate", "reproduce", "smoke")
"""Experiments that can feed the comparison figures: the first whose table is there does."""


def main(argv: Sequence[str] | None = None) -> int:
    """Draw or check; returns the exit code."""
    from figures.catalogue import DRAWINGS
    from figures.redraw import check, redraw
    from figures.results import Inputs, Results

    options = _parser(DRAWINGS).parse_args(argv)
    unknown = [name for name in options.names if name not in DRAWINGS]
    if unknown:
        return _refuse(f"there is no figure {', '.join(unknown)}; there are {', '.join(DRAWINGS)}")
    results = Results(options.results)
    if options.experiment is not None and not results.has(options.experiment):
        return _refuse(f"there is no table {options.results / 'tables' / options.experiment}.csv")
    experiment = options.experiment or next((name for name in COMPARISONS if results.has(name)), COMPARISONS[0])
    inputs = Inputs(results, experiment, options.rate)
    if options.check:
        return check(inputs, options.out, options.names)
    return redraw(inputs, options.out, options.names)


def _refuse(sentence: str) -> int:
    print(sentence, file=sys.stderr)
    return MISTAKE_STATUS


def _parser(figures: Iterable[str]) -> OneSentenceParser:
    parser = OneSentenceParser(prog="python -m figures.draw", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"figures (default: all): {', '.join(figures)}")
    parser.add_argument("--results", type=Path, default=Path("results"), help="results folder (default: results)")
    parser.add_argument("--out", type=Path, default=Path("figures/out"), help="where figures go (default: figures/out)")
    parser.add_argument(
        "--experiment",
        help=f"table of the comparison figures (default: the first there is of {', '.join(COMPARISONS)})",
    )
    parser.add_argument(
        "--rate", type=float, help="rate_scale of ttft_cdf (default: the highest that most series have)"
    )
    parser.add_argument("--check", action="store_true", help="compare rows with those in --out; 1 on a difference")
    return parser


if __name__ == "__main__":
    sys.exit(run_command(main))
