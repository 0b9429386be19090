"""Which waiting work starts together. See also baselines.policies for the rivals' rules."""

import bisect
import collections.abc as c

from engine.core.batch import Work
from engine.core.ports import ItemState, Predictor, Share, WorkItem
from engine.core.slo import NO_SLO_DUE_NS

Fits = c.Callable[[c.Sequence[Share]], bool]


def whole(item: WorkItem) -> Share:
    """All that is left of a waiting item."""
    return Share(item, item.new_tokens)


def work_of(shares: c.Sequence[Share]) -> Work:
    """The work of these shares run as one task."""
    return Work(tuple((share.tokens, share.item.context_tokens) for share in shares))


class NoBatching:
    """One request a task."""

    def select(
        self,
        order: c.Sequence[WorkItem],
        fits: Fits,
        predictor: Predictor,  # noqa: ARG002 - the Batching protocol
        now_ns: int,  # noqa: ARG002
    ) -> c.Sequence[Share]:
        """The head alone."""
        shares = (whole(order[0]),)
        return shares if fits(shares) else ()


class SLOAwareBatching:
    """SLO-aware batching (paper, SLO-aware batching).

    The head takes others along while all of them hold at most `token_bound` tokens together and the head
    would still finish with `alpha` of its SLO to spare: now + predict(batch) <= due - alpha x SLO. The rest of a
    chunked prompt takes none.
    Others are asked in priority order; the first that breaks the time bound ends the walk, one that
    breaks the token bound or does not fit in memory is passed over.
    """

    def __init__(self, alpha: float = 0.1, token_bound: int = 2048) -> None:
        if not 0 <= alpha <= 1:
            raise ValueError(f"alpha must be between 0 and 1, got {alpha}")
        if token_bound < 1:
            raise ValueError(f"token_bound must be at least 1, got {token_bound}")
        self._alpha = alpha
        self._token_bound = token_bound

    def select(self, order: c.Sequence[WorkItem], fits: Fits, predictor: Predictor, now_ns: int) -> c.Sequence[Share]:
        """The head, and those that ride with it."""
        head = order[0]
        alone = [whole(head)]
        if not fits(alone):
            return ()
        slo_ns = head.members[0].slo.ttft_ns or NO_SLO_DUE_NS
        latest_end_ns = head.due_at_ns - int(self._alpha * slo_ns)
        room = self._token_bound - head.new_tokens
        if room <= 0 or head.context_tokens or now_ns > latest_end_ns or len(order) == 1:
            return alone

        def in_time(shares: c.Sequence[Share]) -> bool:
            return now_ns + predictor.estimate_ns(work_of(shares)) <= latest_end_ns

        # With memory for all, the batch is the longest beginning of `hopeful` that is in time: found by bisection,
        # so that a batch of k is priced log k times and not k times.
        hopeful = alone + _within(order, room)
        longest = bisect.bisect_left(range(2, len(hopeful) + 1), True, key=lambda size: not in_time(hopeful[:size])) + 1
        batch = hopeful[:longest]
        if longest == 1 or fits(batch):
            return batch
        return self._one_by_one(order, alone, room, fits, in_time)

    @staticmethod
    def _one_by_one(
        order: c.Sequence[WorkItem], alone: list[Share], room: int, fits: Fits, in_time: Fits
    ) -> c.Sequence[Share]:
        shares = alone
        for item in order[1:]:
            if item.new_tokens > room or not _rides(item):
                continue
            tried = [*shares, whole(item)]
            if not fits(tried):
                continue
            if not in_time(tried):
                break
            shares = tried
            room -= item.new_tokens
            if room == 0:
                break
        return shares


def _within(order: c.Sequence[WorkItem], room: int) -> list[Share]:
    """The followers that a bound on tokens alone lets in."""
    taken: list[Share] = []
    for item in order[1:]:
        if item.new_tokens <= room and _rides(item):
            taken.append(whole(item))
            room -= item.new_tokens
            if room == 0:
                break
    return taken


def _rides(item: WorkItem) -> bool:
    return item.state is ItemState.WAITING and not item.context_tokens
