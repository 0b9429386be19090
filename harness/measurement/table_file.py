"""Tables on disk: CSV, written whole, the same rows always giving the same bytes; NAME.csv, or packed NAME.csv.gz."""

import csv
import fcntl
import gzip
import io
import math
import os
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

Row = Mapping[str, object]

SORT_COLUMNS = (
    "experiment", "workload", "protocol", "model", "device", "source", "length_scale", "slo_scale",
    "series", "chunk_tokens", "rate_scale", "seed", "point",
)  # fmt: skip


PACKED = ".gz"
PACKING_LEVEL = 9


class TableError(ValueError):
    """A table that cannot be read or written; the message names the file and what is wrong."""


def cell(value: object) -> str:
    """One cell's text: empty for None, nine significant digits for a float; lists and nan are errors."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        if math.isnan(value):
            raise TableError("a table cell may not be nan: leave out what was not measured")
        return format(value + 0.0, ".9g")  # + 0.0 turns -0.0 into 0
    if isinstance(value, int | str):
        return str(value)
    raise TableError(f"a table cell may not hold a {type(value).__name__}")


def table_text(rows: Iterable[Row], leading: Sequence[str] = ()) -> str:
    """The CSV of the rows: `leading` columns first, the others in sorted order; rows sorted by their settings."""
    formatted = [{name: cell(value) for name, value in row.items()} for row in rows]
    others = sorted({name for row in formatted for name in row} - set(leading))
    text = io.StringIO()
    writer = csv.DictWriter(text, [*leading, *others], restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(sorted(formatted, key=_sort_key))
    return text.getvalue()


def write_table(path: Path, rows: Iterable[Row], leading: Sequence[str] = ()) -> None:
    """Write the table whole: a reader sees the old file or the new one, never a part.

    path: NAME.csv, or NAME.csv.gz for a packed one. The table in the other form is removed: it would be an older one.
    """
    content = table_text(rows, leading).encode()
    write_whole(path, packed(content) if path.suffix == PACKED else content)
    _in_other_form(path).unlink(missing_ok=True)


def read_table(path: Path) -> list[dict[str, str]]:
    """Rows as text, in the file's order. TableError when it is missing or a row does not have every cell."""
    try:
        content = path.read_bytes()
        text = (gzip.decompress(content) if path.suffix == PACKED else content).decode()
    except FileNotFoundError:
        raise TableError(f"no table {path}") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise TableError(f"the table {path} cannot be unpacked: {error}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise TableError(f"the table {path} cannot be read: {error}") from error
    try:
        rows = list(csv.DictReader(io.StringIO(text, newline="")))
    except csv.Error as error:
        raise TableError(f"the table {path} is no CSV: {error}") from error
    for number, row in enumerate(rows, start=2):
        if None in row or None in row.values():
            raise TableError(f"{path}, line {number}: the number of cells differs from the header's")
    return rows


def table_path(folder: Path, name: str) -> Path:
    """Where the table NAME lies in a folder, packed or not; NAME.csv where there is neither."""
    plain = folder / f"{name}.csv"
    return packed_form if (packed_form := _in_other_form(plain)).is_file() else plain


def packed(content: bytes) -> bytes:
    """The content as gzip: no name and no instant in its header, so that the same content gives the same bytes."""
    packing = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=PACKING_LEVEL, fileobj=packing, mtime=0) as file:
        file.write(content)
    return packing.getvalue()


def merge_rows(path: Path, rows: Iterable[Row], leading: Sequence[str] = ()) -> None:
    """Add rows to a table, replacing those with the same `point`; two runs may do so at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(path.parent):
        kept: dict[object, Row] = {row["point"]: row for row in read_table(path)} if path.exists() else {}
        kept.update({row["point"]: row for row in rows})
        write_table(path, kept.values(), leading)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file under another name beside it, then rename it into place. Raises OSError with the file's name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent)
    partial = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.chmod(0o644)
        partial.replace(path)
    except OSError as error:  # that of a write names no file, and nobody knows the partial one
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        partial.unlink(missing_ok=True)


def _in_other_form(path: Path) -> Path:
    return path.with_suffix("") if path.suffix == PACKED else path.with_name(path.name + PACKED)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock: the folder itself is locked, so that no lock file is left behind."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _sort_key(row: Mapping[str, str]) -> tuple[tuple[int, float, str], ...]:
    """Numbers as numbers, before text; every other cell afterwards, so that the order never depends on the input's."""
    named = [_comparable(row.get(name, "")) for name in SORT_COLUMNS]
    return (*named, *(_comparable(row[name]) for name in sorted(row)))


def _comparable(text: str) -> tuple[int, float, str]:
    try:
        return (0, float(text), text)
    except ValueError:
        return (1, 0.0, text)
