"""Each prefill instance in turn (the paper's proxy)."""

import collections.abc as c

from engine.scheduling.routing.router import Candidate, Prompt


class RoundRobin:
    """The instance after the one that was chosen last; one that is not there is passed over."""

    def __init__(self) -> None:
        self._last = -1

    def choose(self, candidates: c.Sequence[Candidate], prompt: Prompt, now_ns: int) -> int:  # noqa: ARG002 - Router
        """By turns, whatever the load."""
        indices = [candidate.index for candidate in candidates]
        self._last = next((index for index in indices if index > self._last), indices[0])
        return self._last
