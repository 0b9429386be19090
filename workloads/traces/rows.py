"""Files to raw rows: CSV and JSON lines with their line numbers, whatever their line ends, with or without a BOM."""

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from workloads.traces.errors import BadRow, TraceError

GZIP = b"\x1f\x8b"
"""How a packed file begins."""

Line = tuple[int, Mapping[str, Any] | BadRow]


def csv_rows(path: str | Path, needed: Sequence[str]) -> Iterator[Line]:
    """(line number, row by column name) of a CSV file with a header; a BadRow for one with a wrong number of cells.

    needed: columns the header must name. Blank lines are skipped. Raises TraceError for the file as a whole.
    """
    file_path = _existing(path)
    try:
        with file_path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            header = [name.strip() for name in next(reader, [])]
            _check_header(header, needed, path)
            for cells in reader:
                if not any(cell.strip() for cell in cells):
                    continue
                if len(cells) < len(header) or any(cell.strip() for cell in cells[len(header) :]):
                    yield reader.line_num, BadRow(f"{len(cells)} cells where the header names {len(header)} columns")
                else:
                    yield reader.line_num, dict(zip(header, cells, strict=False))
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise TraceError(_not_text(file_path, error)) from error
    except csv.Error as error:
        raise TraceError(f"{path}:{reader.line_num}: not CSV: {error}") from error


def jsonl_rows(path: str | Path) -> Iterator[Line]:
    """(line number, object) of a JSON-lines file; a BadRow in place of a line that is not a JSON object.

    Fractions come as Decimal, so that no digit of an instant is lost. Blank lines are skipped.
    """
    file_path = _existing(path)
    try:
        with file_path.open(encoding="utf-8-sig") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, _json_object(line)
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise TraceError(_not_text(file_path, error)) from error


def _json_object(line: str) -> Mapping[str, Any] | BadRow:
    try:
        value = json.loads(line, parse_float=Decimal)
    except json.JSONDecodeError as error:
        return BadRow(f"not JSON: {error.msg} at column {error.colno}")
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, brackets without end
        return BadRow(f"not JSON of a trace: {error}")
    return value if isinstance(value, dict) else BadRow(f"a JSON object is expected, got {type(value).__name__}")


def _not_text(path: Path, error: UnicodeDecodeError) -> str:
    with path.open("rb") as file:
        packed = file.read(2) == GZIP
    return f"{path} is packed (gzip): unpack it" if packed else f"{path} is not UTF-8 text: {error.reason}"


def _existing(path: str | Path) -> Path:
    file_path = Path(path)
    if file_path.is_dir():
        raise TraceError(f"{path} is a folder; a trace file is expected")
    if not file_path.is_file():
        raise TraceError(
            f"no trace file at {path} (workload.path names it; `make traces` fetches the public ones to data/traces)"
        )
    return file_path


def _check_header(header: Sequence[str], needed: Sequence[str], path: str | Path) -> None:
    if not header:
        raise TraceError(f"{path} is empty; a header line is expected")
    missing = [name for name in needed if name not in header]
    if missing:
        raise TraceError(
            f"{path}:1: no column named {', '.join(missing)}; the header has {', '.join(header)}"
            " (workload.columns.arrival, .input, .output and .class name them)"
        )
    twice = [name for name in needed if header.count(name) > 1]
    if twice:
        raise TraceError(
            f"{path}:1: {header.count(twice[0])} columns are named {twice[0]}: which is meant is not known"
        )
