"""Qwen/Bailian: JSON lines of chat_id, parent_chat_id, timestamp (s), input_length, output_length, type, turn.

`type` is the class: text, image, search or file. A follow-up's input_length already holds the whole history.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from engine.core.trace import Trace
from workloads.traces.admission import AdmissionReport, AdmissionRules, RawRow, admit
from workloads.traces.cells import arrival_ns, cell, token_count
from workloads.traces.errors import BadRow
from workloads.traces.rows import jsonl_rows

FollowUp = Literal["whole", "new_tokens"]

ROOT = -1
"""parent_chat_id of a conversation's first turn."""


def load_qwen(
    path: str | Path, *, name: str = "qwen", follow_up: FollowUp = "whole", rules: AdmissionRules | None = None
) -> tuple[Trace, AdmissionReport]:
    """follow_up: how long a follow-up turn of class text is.

    whole: its input_length, as if nothing were cached. new_tokens (as in the paper): what it adds to the parent's
    input and output, at least 1. A turn whose parent is not in the file, and every other class, counts whole.
    """
    turns = _Turns(follow_up)
    parsed = ((line, turns.read(line, row)) for line, row in jsonl_rows(path))
    trace, report = admit(name, path, parsed, rules or AdmissionRules())
    return trace, replace(report, notes=turns.notes())


@dataclass
class _Turns:
    """Reads turn after turn and remembers how long each conversation has become."""

    follow_up: FollowUp
    history_tokens: dict[object, int] = field(default_factory=dict)
    shortened: int = 0
    clamped: int = 0
    orphans: int = 0

    def read(self, line: int, row: Any) -> RawRow | BadRow:
        if isinstance(row, BadRow):
            return row
        try:
            at_ns = arrival_ns(row, "timestamp", "s")
            input_tokens, output_tokens = token_count(row, "input_length"), token_count(row, "output_length")
            task = str(cell(row, "type"))
            parent, chat = row.get("parent_chat_id", ROOT), row.get("chat_id")
        except BadRow as bad:
            return bad
        length = input_tokens
        if self.follow_up == "new_tokens" and parent != ROOT and task == "text" and input_tokens > 0:
            length = self._new_tokens(parent, input_tokens)
        self.history_tokens[chat] = input_tokens + output_tokens
        return RawRow(line, at_ns, length, output_tokens, task)

    def _new_tokens(self, parent: object, input_tokens: int) -> int:
        history = self.history_tokens.get(parent)
        if history is None:
            self.orphans += 1
            return input_tokens
        self.shortened += 1
        self.clamped += input_tokens <= history
        return max(1, input_tokens - history)

    def notes(self) -> tuple[str, ...]:
        if self.follow_up == "whole":
            return ("follow-up turns counted whole",)
        return (
            f"follow-up text turns counted by their new tokens: {self.shortened}, of which {self.clamped} shorter than "
            f"their history (counted as 1 token); {self.orphans} without their parent in the file (counted whole)",
        )
