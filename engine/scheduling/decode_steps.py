"""Decode steps with deadlines of their own: the next one as a work item, and the instant from which it is urgent.

A token is due one TBT SLO after the one before it. A step that ran as soon as it could would always be due before any
prefill, and none would ever run; so it waits until its slack is down to a reserve, and is then ordered like any other
item, by the policy's key. Without prefill work it does not wait.
"""

from dataclasses import dataclass

from engine.core.batch import Work
from engine.core.ports import ItemState, Predictor, WorkItem
from engine.core.slo import NO_SLO_DUE_NS
from engine.scheduling.execution_pool import decode_task
from engine.scheduling.request_book import LiveRequest, RequestBook

KEY = -2
"""Of the item: no request's."""


def token_due_ns(live: LiveRequest) -> int:
    """When the request's next token is due."""
    tbt_ns = live.request.slo.tbt_ns
    return live.last_token_at_ns + (NO_SLO_DUE_NS if tbt_ns is None else tbt_ns)


@dataclass(frozen=True, slots=True)
class NextStep:
    """The step that could run now. urgent_at_ns: from then on it is ordered before others by its deadline."""

    item: WorkItem
    urgent_at_ns: int


class DecodeSteps:
    """reserve: share of its TBT SLO that a step keeps as slack. last_step_ns: what the latest one took; as long as the
    next is thought to take. None = none has run yet.
    """

    def __init__(self, book: RequestBook, predictor: Predictor, reserve: float, most: int) -> None:
        self._book = book
        self._predictor = predictor
        self._reserve = reserve
        self._most = most
        self.last_step_ns: int | None = None

    def batch(self) -> list[LiveRequest]:
        """Who is in the next step: those whose token is due first."""
        return sorted(self._book.decoding.values(), key=token_due_ns)[: self._most]

    def next(self, now_ns: int) -> NextStep | None:
        """The next step; None when nothing decodes.

        It is due as its earliest token that can still be in time; where none can, as its latest.
        """
        batch = self.batch()
        if not batch:
            return None
        step_ns = self._step_ns(batch)
        # In order of their deadlines: the first that is late enough.
        ordering = next((live for live in batch if token_due_ns(live) > now_ns + step_ns), batch[-1])
        due_at_ns, tbt_ns = token_due_ns(ordering), ordering.request.slo.tbt_ns
        item = WorkItem(
            key=KEY,
            state=ItemState.DECODE,
            members=tuple(live.request for live in batch),
            arrived_at_ns=min(live.request.arrived_at_ns for live in batch),
            due_at_ns=due_at_ns,
            has_slo=tbt_ns is not None,
            remaining_ns=step_ns,
            new_tokens=len(batch),
            context_tokens=sum(live.request.prompt_tokens + live.generated_tokens - 1 for live in batch),
        )
        reserve_ns = round(self._reserve * (NO_SLO_DUE_NS if tbt_ns is None else tbt_ns))
        return NextStep(item, due_at_ns - step_ns - reserve_ns)

    def _step_ns(self, batch: list[LiveRequest]) -> int:
        if self.last_step_ns is not None:
            return self.last_step_ns
        return self._predictor.estimate_ns(Work.of(decode_task(0, batch)))
