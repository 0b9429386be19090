"""Prompts as token ids, drawn by seed. Ids are sent as they are: no text round trip can change a length."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


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
    if seed < 0:
        raise ValueError(f"the seed must be at least 0, got {seed}")
    digest = hashlib.sha256(settings.content.encode()).digest()
    rng = np.random.default_rng([seed, *np.frombuffer(digest, dtype=np.uint32).tolist()])
    first_ids = rng.permutation(np.arange(settings.low, settings.vocab))
    # One int object for each id there is, shared by all prompts: a trace of 100,000 requests fits a laptop's memory.
    shared = list(range(settings.vocab))
    prompts = []
    for i, length in enumerate(lengths):
        # The stream is that of one draw for all: a later prompt never depends on how an earlier one is used.
        ids = rng.integers(settings.low, settings.vocab, size=length, dtype=np.int64)
        ids[:1] = first_ids[i % len(first_ids)]
        prompts.append(tuple(map(shared.__getitem__, ids.tolist())))
    return prompts
