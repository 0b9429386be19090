"""Prompts as token ids, drawn by seed. Ids are sent as they are: no text round trip can change a length."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np

MARK_EVERY = 64
"""Prompts between two remembered states of the stream of draws: a look back draws as many again at most."""


@dataclass(frozen=True, slots=True)
class PromptSettings:
    """Ids are drawn from [low, vocab). low keeps clear of special tokens.

    content: a name mixed into the draw. Give each point measured on one living server a name of its own (its rate,
    say), and no later point finds the prompts of an earlier one in a prefix cache.
    """

    vocab: int
    low: int = 16
    content: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.low < self.vocab:
            raise ValueError(f"prompt ids need 0 <= low < vocab, got low {self.low} and vocab {self.vocab}")


def make_prompts(lengths: Sequence[int], settings: PromptSettings, seed: int) -> list[tuple[int, ...]]:
    """One prompt per length; deterministic in (settings, seed, position).

    Independent uniform ids: two prompts of any seeds or contents share a prefix only by chance. Within one call the
    first ids are all different (as far as the vocabulary reaches), so no request can be another's prefix.
    """
    return [tuple(prompt) for prompt in drawn_prompts(lengths, settings, seed)]


def drawn_prompts(lengths: Sequence[int], settings: PromptSettings, seed: int) -> list["DrawnPrompt"]:
    """The same prompts, each drawn whenever its ids are asked for: those of a long trace would fill the memory."""
    draws = _Draws(lengths, settings, seed)
    return [DrawnPrompt(length, draws, index) for index, length in enumerate(lengths)]


class DrawnPrompt(Sequence[int]):
    """A prompt whose length is known and whose ids are drawn at each look: cheapest in order of position."""

    __slots__ = ("_draws", "_index", "_length")

    def __init__(self, length: int, draws: "_Draws", index: int) -> None:
        self._length = length
        self._draws = draws
        self._index = index

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[int]:
        return iter(self._draws.ids(self._index))

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[int]: ...
    def __getitem__(self, place: int | slice) -> int | Sequence[int]:
        return self._draws.ids(self._index)[place]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, tuple | DrawnPrompt) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))


class _Draws:
    """One stream of draws for all prompts of a run: a later prompt never depends on how an earlier one is used."""

    def __init__(self, lengths: Sequence[int], settings: PromptSettings, seed: int) -> None:
        if seed < 0:
            raise ValueError(f"the seed must be at least 0, got {seed}")
        digest = hashlib.sha256(settings.content.encode()).digest()
        self._rng = np.random.default_rng([seed, *np.frombuffer(digest, dtype=np.uint32).tolist()])
        self._low, self._vocab = settings.low, settings.vocab
        self._lengths = lengths
        self._first_ids = self._rng.permutation(np.arange(settings.low, settings.vocab))
        self._next = 0
        self._marks = [self._rng.bit_generator.state]
        """The stream's state before every prompt whose index is a multiple of MARK_EVERY, as far as it was drawn."""

    def ids(self, index: int) -> list[int]:
        """The ids of one prompt."""
        if index != self._next:
            mark = min(index // MARK_EVERY, len(self._marks) - 1)
            if index < self._next or mark * MARK_EVERY > self._next:
                self._next = mark * MARK_EVERY
                self._rng.bit_generator.state = self._marks[mark]
        while True:
            drawn = self._rng.integers(self._low, self._vocab, size=self._lengths[self._next], dtype=np.int64)
            self._next += 1
            if self._next == len(self._marks) * MARK_EVERY:
                self._marks.append(self._rng.bit_generator.state)
            if self._next > index:
                break
        drawn[:1] = self._first_ids[index % len(self._first_ids)]
        ids: list[int] = drawn.tolist()
        return ids
