"""Draws the figures of a results folder, or holds the rows in a folder of figures against those it would draw."""

import sys
from collections.abc import Sequence
from pathlib import Path

from figures.catalogue import DRAWINGS
from figures.figure_files import first_difference, rows_as_written, write_figure, write_text
from figures.results import DamagedTableError, Inputs, MissingInputError

DONE, DIFFERENT, CANNOT = 0, 1, 2


def redraw(inputs: Inputs, out: Path, asked: Sequence[str]) -> int:
    """Draw the asked figures, or all.

    2 when an asked one, or every one, cannot be drawn or written, or when a table that is there cannot be used.
    """
    skipped: dict[str, str] = {}
    drawn, damaged = 0, False
    for name in asked or DRAWINGS:
        try:
            rows = DRAWINGS[name].rows_from(inputs)
        except MissingInputError as error:
            skipped[name] = str(error)
            damaged = damaged or isinstance(error, DamagedTableError)
            continue
        rows = rows_as_written(rows)
        try:
            paths = write_figure(out, name, rows, DRAWINGS[name].draw(rows))
            paths += write_text(out, name, DRAWINGS[name].text_of(rows))
        except OSError as error:
            print(f"cannot write figures to {out}: {error.strerror}", file=sys.stderr)
            return CANNOT
        print(f"{name}: {', '.join(str(path) for path in paths)}")
        drawn += 1
    for name, reason in skipped.items():
        print(f"{name}: not drawn, {reason}", file=sys.stderr)
    if skipped:
        print(f"not drawn: {', '.join(skipped)}", file=sys.stderr)
    return CANNOT if not drawn or damaged or (asked and skipped) else DONE


def check(inputs: Inputs, out: Path, asked: Sequence[str]) -> int:
    """Hold the rows in `out` against those that would be drawn. 1 on a difference.

    2 when nothing can be compared, an asked one cannot, or a table that is there cannot be used.
    """
    compared, differences, skipped, damaged = 0, [], {}, False
    for name in asked or DRAWINGS:
        path = out / f"{name}.csv"
        try:
            rows = DRAWINGS[name].rows_from(inputs)
        except MissingInputError as error:
            if path.is_file():
                differences.append(f"{path} can no longer be drawn: {error}")
            else:
                skipped[name] = str(error)
                damaged = damaged or isinstance(error, DamagedTableError)
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
    if not compared or damaged or (asked and skipped):
        return CANNOT
    print(f"the rows of {compared} figures in {out} are those that would be drawn")
    return DONE
