"""What each prefill instance has not prefilled yet, as a proxy knows it."""

import collections.abc as c

from engine.scheduling.routing.router import Candidate, Prompt, Router


class PrefillQueues:
    """Requests by instance, from their routing to their first token or their end."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._queues: dict[int, dict[str, Prompt]] = {}

    def route(self, request_id: str, prompt: Prompt, available: c.Sequence[int], now_ns: int) -> int:
        """The instance for this request, one of those available (in order; at least one)."""
        candidates = [Candidate(index, tuple(self._queues.get(index, {}).values())) for index in available]
        index = self._router.choose(candidates, prompt, now_ns)
        self._queues.setdefault(index, {})[request_id] = prompt
        return index

    def leave(self, request_id: str) -> None:
        """The request has its first token, or is over. Nothing happens when it is in no queue."""
        for queue in self._queues.values():
            queue.pop(request_id, None)
