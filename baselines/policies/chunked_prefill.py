"""Chunked prefill: every step computes at most `chunk_tokens`, packed from several requests.

The order of requests is the policy's: with FCFS this is the step rule of vLLM and Sarathi-Serve, with EDF or
S-EDF a strong rival, since the order is decided anew at every step. A step is never stopped: its length is the
granularity.
"""

import collections.abc as c

from engine.core.ports import ItemState, Predictor, Share, WorkItem
from engine.scheduling.batching import Fits


class ChunkBatching:
    """Fills a budget of tokens in order; the last request taken gives only as many tokens as are left.

    overtake: whether a request behind one that does not fit in memory may take its place.
    """

    def __init__(self, chunk_tokens: int, overtake: bool = True) -> None:
        if chunk_tokens < 1:
            raise ValueError(f"chunk_tokens must be at least 1, got {chunk_tokens}")
        self._chunk_tokens = chunk_tokens
        self._overtake = overtake

    def select(
        self,
        order: c.Sequence[WorkItem],
        fits: Fits,
        predictor: Predictor,  # noqa: ARG002 - the Batching protocol
        now_ns: int,  # noqa: ARG002
    ) -> c.Sequence[Share]:
        """Shares that sum to at most `chunk_tokens`."""
        shares: list[Share] = []
        room = self._chunk_tokens
        for item in order:
            if item.state is not ItemState.WAITING:
                continue
            tried = [*shares, Share(item, min(item.new_tokens, room))]
            if not fits(tried):
                if not shares or not self._overtake:
                    break
                continue
            shares = tried
            room -= tried[-1].tokens
            if room == 0:
                break
        return shares
