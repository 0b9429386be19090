"""Tasks: what the executor runs. A task is a batch of sequences of one kind."""

from dataclasses import dataclass
from enum import StrEnum


class TaskKind(StrEnum):
    """What a task does with its sequences."""

    PREFILL = "prefill"
    DECODE_STEP = "decode_step"
    KV_SEND = "kv_send"
    KV_RECEIVE = "kv_receive"


HAND_OVERS = (TaskKind.KV_SEND, TaskKind.KV_RECEIVE)
"""Kinds that move the KV of one request and compute nothing: they run beside the task that executes."""


@dataclass(frozen=True, slots=True)
class Sequence:
    """One request's share of a task: `new_tokens` computed after `context_tokens` that are in the KV cache.

    last: this share ends the prompt (its last position yields the first token), or is a decode step.
    A hand-over computes no tokens: its `context_tokens` are moved.
    """

    request_id: str
    context_tokens: int
    new_tokens: int
    last: bool = True


@dataclass(frozen=True, slots=True)
class Task:
    """A batch of sequences that execute, pause and complete together.

    task_id: unique in an engine's life; grows with the order of creation.
    """

    task_id: int
    kind: TaskKind
    sequences: tuple[Sequence, ...]

    @property
    def new_tokens(self) -> int:
        """Token rows the task computes."""
        return sum(sequence.new_tokens for sequence in self.sequences)


@dataclass(frozen=True, slots=True)
class Work:
    """What a predictor prices: the lengths, not their sum; the order of `lengths` carries no meaning.

    lengths: (new_tokens, context_tokens) of each sequence.
    operators_done: the cursor of a partly executed task, in operators that are not split into tiles.
    """

    lengths: tuple[tuple[int, int], ...]
    kind: TaskKind = TaskKind.PREFILL
    operators_done: int = 0

    @staticmethod
    def of(task: Task) -> "Work":
        """The work of a whole task."""
        return Work(tuple((s.new_tokens, s.context_tokens) for s in task.sequences), task.kind)
