"""DistServe's prefill instance: FCFS, no preemption, batches limited by tokens.

DistServe keeps a batch near the length at which the device is saturated: prompts are added in order of
arrival while their sum stays within a bound; a longer prompt runs alone.
"""

import collections.abc as c

from engine.core.ports import ItemState, Policy, Predictor, Share, WorkItem
from engine.scheduling.batching import Fits, whole
from engine.scheduling.policies.fcfs import FCFS
from engine.scheduling.policies.non_preemptive import NonPreemptive


def distserve_order() -> Policy:
    """First come, first served, run to completion."""
    return NonPreemptive(FCFS())


class TokenLimitedBatching:
    """Waiting prompts in order while their tokens sum to at most `token_bound`; the first that would exceed it ends
    the batch (no prompt overtakes another).
    """

    def __init__(self, token_bound: int = 2048) -> None:
        if token_bound < 1:
            raise ValueError(f"token_bound must be at least 1, got {token_bound}")
        self._token_bound = token_bound

    def select(
        self,
        order: c.Sequence[WorkItem],
        fits: Fits,
        predictor: Predictor,  # noqa: ARG002 - the Batching protocol
        now_ns: int,  # noqa: ARG002
    ) -> c.Sequence[Share]:
        """The head and its followers."""
        shares = [whole(order[0])]
        if not fits(shares):
            return ()
        room = self._token_bound - order[0].new_tokens
        for item in order[1:]:
            if item.state is not ItemState.WAITING:
                continue
            if item.new_tokens > room:
                break
            tried = [*shares, whole(item)]
            if fits(tried):
                shares = tried
                room -= item.new_tokens
        return shares
