"""Rows that are an instant, an input length and an output length, under whatever names a publisher gives them."""

from collections.abc import Iterator

from workloads.traces.admission import RawRow
from workloads.traces.cells import ArrivalUnit, arrival_ns, token_count
from workloads.traces.errors import BadRow
from workloads.traces.rows import Line


def plain_rows(
    lines: Iterator[Line], arrival: str, unit: ArrivalUnit, inputs: str, outputs: str
) -> Iterator[tuple[int, RawRow | BadRow]]:
    """Each line with its number: the row, or what is wrong with it. arrival, inputs, outputs: names of its cells."""
    for number, cells in lines:
        if isinstance(cells, BadRow):
            yield number, cells
            continue
        try:
            at_ns = arrival_ns(cells, arrival, unit)
            yield number, RawRow(number, at_ns, token_count(cells, inputs), token_count(cells, outputs))
        except BadRow as bad:
            yield number, bad
