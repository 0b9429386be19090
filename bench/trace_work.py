"""The pieces of prefill work that a trace makes: whole prompts, batches, chunks, the rest of what was preempted."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from engine.core.batch import Work

WHOLE, BATCH, CHUNK, REST = KINDS = ("whole", "batch", "chunk", "rest")


@dataclass(frozen=True, slots=True)
class Piece:
    """One piece. kind: of `KINDS`. work: its lengths, and for a rest the operators that were run before."""

    kind: str
    work: Work


def pieces_of(prompts: Sequence[int], token_bound: int, chunk_tokens: int, operators: int) -> Iterator[Piece]:
    """prompts: lengths in order of arrival.

    A batch holds neighbours, two or more, of `token_bound` tokens at most. Chunks are of `chunk_tokens`, each at its
    true position. Every prompt was preempted once, at an operator drawn (seed 0) from those after the first.
    """
    draw = random.Random(0)
    for prompt in prompts:
        yield Piece(WHOLE, Work(((prompt, 0),)))
        yield Piece(REST, Work(((prompt, 0),), operators_done=draw.randrange(1, operators)))
        starts = range(0, prompt, chunk_tokens) if prompt > chunk_tokens else ()
        for start in starts:
            yield Piece(CHUNK, Work(((min(chunk_tokens, prompt - start), start),)))
    for batch in _batches(prompts, token_bound):
        yield Piece(BATCH, Work(tuple((prompt, 0) for prompt in batch)))


def _batches(prompts: Sequence[int], token_bound: int) -> Iterator[list[int]]:
    held: list[int] = []
    for prompt in prompts:
        if held and sum(held) + prompt > token_bound:
            if len(held) > 1:
                yield held
            held = []
        if prompt <= token_bound:
            held.append(prompt)
    if len(held) > 1:
        yield held
