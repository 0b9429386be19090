"""The bench's rows: means and paired comparisons with 95 % bootstrap intervals, as CSV and for a person."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, fields

from harness.measurement.table_file import Row
from harness.measurement.uncertainty import bootstrap, bootstrap_mean


@dataclass(frozen=True, slots=True)
class Line:
    """One number. server: whose, or "a - b", "a / b". value: the mean, of a ratio the median of pairs."""

    measure: str
    server: str
    tokens: int
    n: int
    value: float
    low: float | None
    high: float | None
    largest: float | None
    unit: str

    def row(self) -> Row:
        """For the table."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def text(self) -> str:
        """For a person."""
        ends = "" if self.low is None else f"[{self.low:.4g}, {self.high:.4g}]"
        most = "" if self.largest is None else f"most {self.largest:.4g}"
        what = f"{self.measure:28s} {self.server:20s} {self.tokens:5d} tokens"
        return f"{what} {self.value:10.4g} {ends:22s} {self.unit:9s} n={self.n} {most}"


COLUMNS = tuple(field.name for field in fields(Line))


def mean(measure: str, server: str, tokens: int, values: Sequence[float], unit: str) -> Line:
    """A mean of independent values."""
    ends = bootstrap_mean(values)
    return Line(
        measure, server, tokens, len(values), statistics.fmean(values), None if ends is None else ends.low,
        None if ends is None else ends.high, max(values), unit,
    )  # fmt: skip


def mean_of_rounds(measure: str, server: str, tokens: int, rounds: Sequence[Sequence[float]], unit: str) -> Line:
    """A mean of values taken in rounds; whole rounds are drawn again, for the values of one share a long prompt."""

    def middle(drawn: Sequence[Sequence[float]]) -> float:
        return statistics.fmean(value for one in drawn for value in one)

    ends = bootstrap(rounds, middle)
    values = [value for one in rounds for value in one]
    return Line(
        measure, server, tokens, len(values), middle(rounds), None if ends is None else ends.low,
        None if ends is None else ends.high, max(values), unit,
    )  # fmt: skip


def ratio(measure: str, server: str, tokens: int, pairs: Sequence[tuple[float, float]]) -> Line:
    """Median over pairs of first / second."""
    ratios = [first / second for first, second in pairs]
    ends = bootstrap(ratios, statistics.median)
    low, high = (None, None) if ends is None else (ends.low, ends.high)
    return Line(measure, server, tokens, len(ratios), statistics.median(ratios), low, high, max(ratios), "ratio")
