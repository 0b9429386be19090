"""The committed results as a figure reads them: tidy tables, max goodput tables and raw records."""

import gzip
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from engine.core.record import RequestRecord
from harness.measurement.store import StoreError, read_point
from harness.measurement.table_file import table_path

NUMBER_COLUMNS = frozenset(
    {
        "seed", "seeds", "rate_scale", "rate_rps", "slo_scale", "attainment", "attainment_n", "blocking_n",
        "blocking_mean_ms", "blocking_p50_ms", "blocking_p99_ms", "blocking_max_ms", "prefill_tokens_per_s",
        "decisions", "requests_due", "requests_ok", "ratio", "ratio_low", "ratio_high",
        *(f"max_goodput_{end}{unit}" for end in ("", "low_", "high_") for unit in ("rps", "rate_scale")),
    }
)  # fmt: skip
"""Columns a figure or claim calculates with."""


UNREADABLE = (
    pd.errors.EmptyDataError, pd.errors.ParserError, UnicodeDecodeError, gzip.BadGzipFile, EOFError, zlib.error,
)  # fmt: skip


class MissingInputError(Exception):
    """A figure or claim cannot be made from what is there. The message is one sentence for the user."""


class DamagedTableError(MissingInputError):
    """A table is there and cannot be used: never passed over, whatever could be drawn without it."""


@dataclass(frozen=True, slots=True)
class Results:
    """A results folder: `tables/<experiment>.csv` (packed: `.csv.gz`) and `raw/<experiment>/<point>/`."""

    root: Path

    def has(self, experiment: str) -> bool:
        """Whether the experiment's table is there."""
        return self._table_path(experiment).is_file()

    def table(self, experiment: str, needed: tuple[str, ...] = ()) -> pd.DataFrame:
        """The experiment's table. Raises MissingInputError when it or every row is missing, DamagedTableError when it
        cannot be read, lacks a needed column or has a cell that must be a number and is none."""
        path = self._table_path(experiment)
        if not path.is_file():
            raise MissingInputError(f"the table {path} is not there")
        try:
            frame = pd.read_csv(path, keep_default_na=False, na_values=[""])
        except UNREADABLE as error:
            raise DamagedTableError(f"the table {path} cannot be read: {' '.join(str(error).split())}") from error
        absent = [column for column in needed if column not in frame.columns]
        if absent:
            raise DamagedTableError(f"the table {path} has no column {', '.join(absent)}")
        if frame.empty:
            raise MissingInputError(f"the table {path} has no rows")
        for column in set(needed) & NUMBER_COLUMNS:
            _require_numbers(frame[column], path)
        return frame

    def records(self, experiment: str, point: str) -> tuple[RequestRecord, ...]:
        """The raw records of a point. Raises MissingInputError when its folder is absent or damaged."""
        try:
            return read_point(self.root / "raw" / experiment / point).records
        except StoreError as error:
            raise MissingInputError(str(error)) from error

    def _table_path(self, experiment: str) -> Path:
        return table_path(self.root / "tables", experiment)


def _require_numbers(column: "pd.Series[Any]", path: Path) -> None:
    if pd.api.types.is_numeric_dtype(column):
        return
    for line, value in enumerate(column, start=2):
        if pd.isna(pd.to_numeric(value, errors="coerce")) and not pd.isna(value):
            raise DamagedTableError(f"the table {path}, line {line}: {column.name} must be a number, got {value!r}")


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a figure is drawn from.

    experiment: the table behind the comparison figures. rate_scale: the rate of the TTFT figure; None = chosen by it.
    """

    results: Results
    experiment: str
    rate_scale: float | None = None
