"""Redraw the figures from results: `python -m figures.draw [NAME ...]`; `--check` compares rows instead of drawing."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from figures.catalogue import DRAWINGS
from figures.figure_files import first_difference, rows_as_written, write_figure
from figures.results import Inputs, MissingInputError, Results

COMPARISONS = ("goodput_vs_rate", "reproduce", "smoke")
"""Experiments that can feed the comparison figures: the first whose table is there does."""

DONE, DIFFERENT, CANNOT = 0, 1, 2


def main(argv: Sequence[str] | None = None) -> int:
    """Draw or check; returns the exit code."""
    options = _parser().parse_args(argv)
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


def redraw(inputs: Inputs, out: Path, asked: Sequence[str]) -> int:
    """Draw the asked figures, or all. 2 when an asked one, or every one, cannot be drawn or written."""
    skipped: dict[str, str] = {}
    drawn = 0
    for name in asked or DRAWINGS:
        try:
            rows = DRAWINGS[name].rows_from(inputs)
        except MissingInputError as error:
            skipped[name] = str(error)
            continue
        rows = rows_as_written(rows)
        try:
            paths = write_figure(out, name, rows, DRAWINGS[name].draw(rows))
        except OSError as error:
            return _refuse(f"cannot write figures to {out}: {error.strerror}")
        print(f"{name}: {', '.join(str(path) for path in paths)}")
        drawn += 1
    for name, reason in skipped.items():
        print(f"{name}: not drawn, {reason}", file=sys.stderr)
    if skipped:
        print(f"not drawn: {', '.join(skipped)}", file=sys.stderr)
    return CANNOT if not drawn or (asked and skipped) else DONE


def check(inputs: Inputs, out: Path, asked: Sequence[str]) -> int:
    """Hold the rows in `out` against those that would be drawn. 1 on a difference, 2 when nothing can be compared."""
    compared, differences, skipped = 0, [], {}
    for name in asked or DRAWINGS:
        path = out / f"{name}.csv"
        try:
            rows = DRAWINGS[name].rows_from(inputs)
        except MissingInputError as error:
            if path.is_file():
                differences.append(f"{path} can no longer be drawn: {error}")
            else:
                skipped[name] = str(error)
            continue
        compared += 1
        difference = first_difference(path, rows)
        if difference is not None:
            differences.append(difference)
    for difference in differences:
        print(difference, file=sys.stderr)
    for name, reason in skipped.items():
        print(f"{name}: not compared, {reason}", file=sys.stderr)
    if differences:
        return DIFFERENT
    if not compared or (asked and skipped):
        return CANNOT
    print(f"the rows of {compared} figures in {out} are those that would be drawn")
    return DONE


def _refuse(sentence: str) -> int:
    print(sentence, file=sys.stderr)
    return CANNOT


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m figures.draw", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"figures (default: all): {', '.join(DRAWINGS)}")
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
    sys.exit(main())
