"""One cell of a raw row to a number or an instant. Every reader raises BadRow with a sentence that names the column."""

import re
from collections.abc import Mapping
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any, Literal

from workloads.traces.errors import BadRow

ArrivalUnit = Literal["s", "ms", "timestamp"]

NS_PER_UNIT = {"s": Decimal(10**9), "ms": Decimal(10**6)}

MOST_TOKENS = 1_000_000_000
"""No request has more; a larger number is another column, or damage."""

FARTHEST_S = 10**12
"""No trace lasts 30,000 years; a larger number is another unit, or damage."""

_TIMESTAMP = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9})\d*)?\s*(?:(Z|z)|([+-])(\d\d):?(\d\d))?"
)


def cell(row: Mapping[str, Any], column: str) -> Any:
    """The value of a column; an absent or empty one is a BadRow."""
    value = row.get(column)
    if value is None or (isinstance(value, str) and not value.strip()):
        raise BadRow(f"{column} is missing")
    return value


def token_count(row: Mapping[str, Any], column: str) -> int:
    """A whole number of tokens, 0 or more ("12" and "12.0" alike)."""
    value = cell(row, column)
    number = _decimal(value, column)
    if number != number.to_integral_value():
        raise BadRow(f"{column} must be a whole number of tokens, got {value}")
    if number < 0:
        raise BadRow(f"{column} must not be negative, got {value}")
    if number > MOST_TOKENS:
        raise BadRow(f"{column} must be at most {MOST_TOKENS} tokens, got {value}")
    return int(number)


def arrival_ns(row: Mapping[str, Any], column: str, unit: ArrivalUnit) -> int:
    """The instant of a row in nanoseconds: after the trace's own zero (s, ms) or after the year 1 (timestamp)."""
    value = cell(row, column)
    if unit == "timestamp":
        return timestamp_ns(str(value).strip(), column)
    number = _decimal(value, column)
    if number.copy_abs() > FARTHEST_S * NS_PER_UNIT["s"] / NS_PER_UNIT[unit]:
        raise BadRow(f"{column} must be within {FARTHEST_S:.0e} s of the trace's zero, got {value}")
    return round(number * NS_PER_UNIT[unit])


def timestamp_ns(text: str, column: str = "timestamp") -> int:
    """A date and time to nanoseconds since the year 1, UTC: up to 9 fractional digits kept, none needed.

    Takes `2023-11-16 18:17:03.9799600`, `2024-05-10 00:00:00+00:00`, a `T` between, a `Z` at the end. Without an
    offset the stamp counts as UTC. (datetime.fromisoformat keeps only 6 digits.)
    """
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise BadRow(f"{column} must be a timestamp like 2023-11-16 18:17:03.9799600, got {text!r}")
    year, month, day, hour, minute, second, fraction, _, sign, offset_hours, offset_minutes = match.groups()
    try:
        days = date(int(year), int(month), int(day)).toordinal()
    except ValueError as error:
        raise BadRow(f"{column} names no day that exists: {text!r}") from error
    if int(hour) > 23 or int(minute) > 59 or int(second) > 60:
        raise BadRow(f"{column} names no time that exists: {text!r}")
    seconds = days * 86_400 + int(hour) * 3600 + int(minute) * 60 + int(second)
    if sign:
        offset_s = int(offset_hours) * 3600 + int(offset_minutes) * 60
        seconds -= offset_s if sign == "+" else -offset_s
    return seconds * 10**9 + int((fraction or "").ljust(9, "0"))


def _decimal(value: Any, column: str) -> Decimal:
    if isinstance(value, bool):
        raise BadRow(f"{column} must be a number, got {value}")
    try:
        number = value if isinstance(value, Decimal) else Decimal(value.strip() if isinstance(value, str) else value)
    except (InvalidOperation, TypeError, ValueError) as error:
        stamp = isinstance(value, str) and _TIMESTAMP.fullmatch(value.strip()) is not None
        hint = " (workload.arrival_unit=timestamp reads it)" if stamp else ""
        raise BadRow(f"{column} must be a number, got {value!r}{hint}") from error
    if not number.is_finite():
        raise BadRow(f"{column} must be a finite number, got {value}")
    return number
