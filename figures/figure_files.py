"""What a figure leaves behind: PNG, PDF and the rows it drew; and the comparison of rows with those on disk.

PNG and rows are committed, a PDF (for a paper) is drawn when it is needed.
"""

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure
from PIL import Image

from harness.measurement.table_file import write_whole

DIGITS = 7
RELATIVE_TOLERANCE = 1e-5
"""Another processor's arithmetic may differ in the last digits written; a difference that matters may not."""

ABSOLUTE_TOLERANCE = 1e-9
DOTS_PER_INCH = 160
COLOURS = 256
WHITE = 255


def rows_text(rows: pd.DataFrame) -> str:
    """The rows as CSV: seven significant digits, empty for what was not measured."""
    return rows.to_csv(index=False, float_format=f"%.{DIGITS}g", lineterminator="\n")


def rows_as_written(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows as a reader of their CSV gets them: a figure shows what its rows say, digit for digit."""
    words = [name for name in rows.columns if rows[name].dtype.kind not in "iufb"]
    read = pd.read_csv(
        io.StringIO(rows_text(rows)), keep_default_na=False, na_values=[""], dtype=dict.fromkeys(words, str)
    )
    return read.fillna(dict.fromkeys(words, ""))


def write_figure(folder: Path, name: str, rows: pd.DataFrame, figure: Figure) -> list[Path]:
    """Write NAME.png, NAME.pdf and NAME.csv whole. The same rows give the same bytes: no stamps inside."""
    content = {"png": _png(figure), "pdf": _pdf(figure), "csv": rows_text(rows).encode()}
    paths = {suffix: folder / f"{name}.{suffix}" for suffix in content}
    for suffix, path in paths.items():
        write_whole(path, content[suffix])
    return list(paths.values())


def write_text(folder: Path, name: str, text: str | None) -> list[Path]:
    """Write NAME.md, where the figure has a text."""
    if text is None:
        return []
    write_whole(folder / f"{name}.md", text.encode())
    return [folder / f"{name}.md"]


def first_difference(path: Path, rows: pd.DataFrame) -> str | None:
    """One sentence that names the file and its first row unlike the rows that would be drawn; None when all agree."""
    try:
        committed = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return f"{path} is not there"
    old, new = (list(csv.reader(io.StringIO(text, newline=""))) for text in (committed, rows_text(rows)))
    for line in range(max(len(old), len(new))):
        if line >= len(old):
            return f"{path} ends before row {line}, which would be drawn: {','.join(new[line])}"
        if line >= len(new):
            return f"{path} has a row {line} that would not be drawn: {','.join(old[line])}"
        if not _same(old[line], new[line]):
            where = "its header" if line == 0 else f"row {line}"
            return f"{path} differs in {where}: {_unlike(old, new, line)}"
    return None


def _png(figure: Figure) -> bytes:
    """With a palette: no line or letter needs more colours, and the file has a quarter of the size."""
    drawn, image = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=DOTS_PER_INCH, metadata={"Software": None})
    few = Image.open(drawn).convert("RGB").quantize(COLOURS, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    # The palette rounds white to the grey next to it.
    few.putpalette([WHITE if value >= WHITE - 1 else value for value in few.getpalette() or []])
    few.save(image, format="png", optimize=True, dpi=(DOTS_PER_INCH, DOTS_PER_INCH))
    return image.getvalue()


def _pdf(figure: Figure) -> bytes:
    image = io.BytesIO()
    figure.savefig(image, format="pdf", dpi=DOTS_PER_INCH, metadata={"CreationDate": None, "Creator": None})
    return image.getvalue()


def _same(old: Sequence[str], new: Sequence[str]) -> bool:
    return len(old) == len(new) and all(_same_cell(a, b) for a, b in zip(old, new, strict=True))


def _same_cell(a: str, b: str) -> bool:
    if a == b:
        return True
    try:
        return math.isclose(float(a), float(b), rel_tol=RELATIVE_TOLERANCE, abs_tol=ABSOLUTE_TOLERANCE)
    except ValueError:
        return False


def _unlike(old: Sequence[Sequence[str]], new: Sequence[Sequence[str]], line: int) -> str:
    if line == 0 or len(old[line]) != len(new[line]):
        return f"there {','.join(old[line])}, drawn {','.join(new[line])}"
    pairs = zip(new[0], old[line], new[line], strict=True)
    return "; ".join(f"{name} is {a or 'empty'}, drawn {b or 'empty'}" for name, a, b in pairs if not _same_cell(a, b))
