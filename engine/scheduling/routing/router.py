"""The seam to a routing policy, and what it sees of the prefill instances."""

import collections.abc as c
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Prompt:
    """A request without its first token. prefill_ns: predicted time of its prefill, alone and from its beginning."""

    due_at_ns: int
    prefill_ns: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """A prefill instance that could take a request. index: among all. queue: what it has not prefilled yet."""

    index: int
    queue: tuple[Prompt, ...] = ()


class Router(Protocol):
    """Chooses the prefill instance of each request once, as it arrives."""

    def choose(self, candidates: c.Sequence[Candidate], prompt: Prompt, now_ns: int) -> int:
        """The index of one of the candidates; there is at least one, in order of their indices."""
        ...


def predicted_slack_ns(candidate: Candidate, prompt: Prompt, now_ns: int) -> int:
    """What would be left of the prompt's time on this instance, behind all that is due no later: less than 0 = late.

    What executes there is counted in full: a router hears of first tokens, not of operators.
    """
    ahead_ns = sum(queued.prefill_ns for queued in candidate.queue if queued.due_at_ns <= prompt.due_at_ns)
    return prompt.due_at_ns - now_ns - ahead_ns - prompt.prefill_ns
