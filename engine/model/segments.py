"""The sequences of a task laid out in rows."""

from dataclasses import dataclass

from engine.core.batch import Task


@dataclass(frozen=True, slots=True)
class Segment:
    """The rows of one sequence in a task: `rows` of them from `first_row`, after `context_tokens` in the cache.

    last: the sequence ends its prompt here, or is a decode step; its last row yields a token.
    """

    request_id: str
    first_row: int
    rows: int
    context_tokens: int
    last: bool


def segments_of(task: Task) -> tuple[Segment, ...]:
    """Lay the sequences of a task out in rows, in their order."""
    segments: list[Segment] = []
    row = 0
    for sequence in task.sequences:
        segments.append(Segment(sequence.request_id, row, sequence.new_tokens, sequence.context_tokens, sequence.last))
        row += sequence.new_tokens
    return tuple(segments)
