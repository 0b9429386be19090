"""Where every live request stands, and the legal moves.

    waiting -> executing <-> preempted
    executing -> decoding, or waiting again (a chunk ended; a restart)
    executing -> prefilled -> on its way: its KV stays until a decode instance has room, then leaves for it
    incoming -> on its way -> decoding: its KV comes from a prefill instance once there are blocks for it
    executing, preempted, decoding, on its way -> leaving: its client left while a task may still use its KV
    any -> releasing: it is over, its KV blocks are on their way back; then it is gone

Work items are kept up to date as things change, not rebuilt at each look, so that one look at 1000 live
requests stays cheap.
"""

import collections.abc as c
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from engine.core.batch import Work
from engine.core.ports import ItemState, Predictor, WorkItem
from engine.core.request import HandOver, Request
from engine.scheduling.live_items import LiveItems


class BookError(AssertionError):
    """An illegal move: a fault of the scheduler or of the executor, never of a user."""


class Stand(StrEnum):
    """Where a live request is."""

    WAITING = "waiting"
    EXECUTING = "executing"
    PREEMPTED = "preempted"
    DECODING = "decoding"
    PREFILLED = "prefilled"
    INCOMING = "incoming"
    ON_ITS_WAY = "on its way"
    LEAVING = "leaving"
    RELEASING = "releasing"


MOVES: Final[c.Mapping[Stand, frozenset[Stand]]] = {
    Stand.WAITING: frozenset({Stand.EXECUTING, Stand.RELEASING}),
    Stand.EXECUTING: frozenset(
        {Stand.PREEMPTED, Stand.WAITING, Stand.DECODING, Stand.PREFILLED, Stand.LEAVING, Stand.RELEASING}
    ),
    Stand.PREEMPTED: frozenset({Stand.EXECUTING, Stand.WAITING, Stand.LEAVING, Stand.RELEASING}),
    Stand.DECODING: frozenset({Stand.LEAVING, Stand.RELEASING}),
    Stand.PREFILLED: frozenset({Stand.ON_ITS_WAY, Stand.RELEASING}),
    Stand.INCOMING: frozenset({Stand.ON_ITS_WAY, Stand.RELEASING}),
    Stand.ON_ITS_WAY: frozenset({Stand.DECODING, Stand.LEAVING, Stand.RELEASING}),
    Stand.LEAVING: frozenset({Stand.RELEASING}),
    Stand.RELEASING: frozenset(),
}

HANDING_OVER: Final = frozenset({Stand.PREFILLED, Stand.INCOMING, Stand.ON_ITS_WAY})

KV_ON_ITS_WAY_BACK: Final = 1 << 62
"""`missing_blocks` of a request that waits to restart: it cannot start before its old blocks are back."""


@dataclass(slots=True, eq=False)
class LiveRequest:
    """A request and how far it is.

    blocks: KV blocks it needs in all. missing_blocks: those it must still reserve before it can run.
    """

    request: Request
    blocks: int
    missing_blocks: int
    stand: Stand = Stand.WAITING
    context_tokens: int = 0
    generated_tokens: int = 0
    last_token_at_ns: int = 0

    @property
    def ended(self) -> bool:
        """Whether nothing more is to be computed for it."""
        return self.stand in (Stand.LEAVING, Stand.RELEASING)


@dataclass(frozen=True, slots=True)
class LiveCounts:
    """Live work: waiting and decoding count requests, executing and preempted count prefill tasks.

    handing_over: requests whose KV is about to come or to leave, or on its way.
    """

    waiting: int = 0
    executing: int = 0
    preempted: int = 0
    decoding: int = 0
    handing_over: int = 0


@dataclass
class RequestBook:
    """All live requests, and the work items a policy sees. predictor: prices a waiting request once."""

    predictor: Predictor
    items: LiveItems = field(default_factory=LiveItems)
    waiting: dict[int, LiveRequest] = field(default_factory=dict)
    decoding: dict[str, LiveRequest] = field(default_factory=dict)
    incoming: dict[str, LiveRequest] = field(default_factory=dict)
    _requests: dict[str, LiveRequest] = field(default_factory=dict)
    _seqs: set[int] = field(default_factory=set)

    def find(self, request_id: str) -> LiveRequest | None:
        """The live request of this id."""
        return self._requests.get(request_id)

    @property
    def requests(self) -> c.Collection[LiveRequest]:
        """All of them."""
        return self._requests.values()

    def conflict(self, request: Request) -> str:
        """Why the request cannot be told from a live one: a sentence, or nothing."""
        if request.request_id in self._requests:
            return f"a request with the id {request.request_id!r} is live already"
        if request.seq in self._seqs:
            return f"a live request has the sequence number {request.seq} already"
        return ""

    def arrive(self, request: Request, blocks: int) -> LiveRequest:
        """A new request waits: for its prefill, or for blocks that its KV may come to."""
        if self.conflict(request):
            raise BookError(self.conflict(request))
        live = LiveRequest(request, blocks, missing_blocks=blocks)
        self._requests[request.request_id] = live
        self._seqs.add(request.seq)
        if request.hand_over is HandOver.RECEIVES:
            live.stand, live.generated_tokens = Stand.INCOMING, 1
            self.incoming[request.request_id] = live
        else:
            self._post(live)
        return live

    def wait_again(self, live: LiveRequest, context_tokens: int) -> None:
        """The rest of the prompt after `context_tokens` waits, at the request's own key."""
        live.context_tokens = context_tokens
        self.move(live, Stand.WAITING)
        self._post(live)

    def move(self, live: LiveRequest, stand: Stand) -> None:
        """From one stand to another. Raises BookError when the move is not legal."""
        if stand not in MOVES[live.stand]:
            raise BookError(f"{live.request.request_id} cannot go from {live.stand} to {stand}")
        if live.stand is Stand.WAITING:
            del self.waiting[live.request.seq]
            self.items.drop(live.request.seq)
        elif live.stand is Stand.DECODING:
            del self.decoding[live.request.request_id]
        elif live.stand is Stand.INCOMING:
            del self.incoming[live.request.request_id]
        live.stand = stand
        if stand is Stand.DECODING:
            self.decoding[live.request.request_id] = live

    def to_the_end_of_decoding(self, live: LiveRequest) -> None:
        """It had its step; others come first now."""
        self.decoding[live.request.request_id] = self.decoding.pop(live.request.request_id)

    def forget(self, live: LiveRequest) -> None:
        """The request is gone for good; its id may come again."""
        if live.stand is not Stand.RELEASING:
            raise BookError(f"{live.request.request_id} cannot be forgotten: it is {live.stand}")
        del self._requests[live.request.request_id]
        self._seqs.discard(live.request.seq)

    def check(self) -> None:
        """Raise BookError when two of the book's pages disagree."""
        for live in self._requests.values():
            seq, request_id = live.request.seq, live.request.request_id
            item = self.items.get(seq)
            shown = item is not None and item.state is ItemState.WAITING and item.members == (live.request,)
            if shown != (live.stand is Stand.WAITING) or (self.waiting.get(seq) is live) != shown:
                raise BookError(f"{request_id} is {live.stand}, but shown as waiting: {shown}")
            if (request_id in self.decoding) != (live.stand is Stand.DECODING):
                raise BookError(f"{request_id} is {live.stand}, which its place among the decoding denies")
            if (request_id in self.incoming) != (live.stand is Stand.INCOMING):
                raise BookError(f"{request_id} is {live.stand}, which its place among the incoming denies")
        if len(self._seqs) != len(self._requests):
            raise BookError("sequence numbers and requests differ in number")
        self.items.check()
        for item in self.items.in_due_order:
            if (item.key in self.waiting) != (item.state is ItemState.WAITING):
                raise BookError(f"item {item.key} is shown as {item.state}, which is wrong")

    def _post(self, live: LiveRequest) -> None:
        request = live.request
        self.waiting[request.seq] = live
        self.items.put(waiting_item(request, live.context_tokens, self.predictor))


def waiting_item(request: Request, context_tokens: int, predictor: Predictor) -> WorkItem:
    """The rest of a request's prompt as a policy sees it."""
    left = request.prompt_tokens - context_tokens
    return WorkItem(
        key=request.seq,
        state=ItemState.WAITING,
        members=(request,),
        arrived_at_ns=request.arrived_at_ns,
        due_at_ns=request.due_at_ns,
        has_slo=request.has_slo,
        remaining_ns=predictor.estimate_ns(Work(((left, context_tokens),))),
        new_tokens=left,
        context_tokens=context_tokens,
    )
