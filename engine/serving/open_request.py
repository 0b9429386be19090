"""A request that an engine process has, and what comes out of it: tokens, or its KV's departure."""

import asyncio
from dataclasses import dataclass

from engine.serving.api_error import ApiError


@dataclass(frozen=True, slots=True)
class Token:
    """One generated token. finish_reason: set on the last."""

    token_id: int
    finish_reason: str | None


@dataclass(frozen=True, slots=True)
class Sent:
    """The request's KV has left the engine, which knows it no more. ticket: by which it is found."""

    ticket: str


class OpenRequest:
    """A request the engine has; its tokens come out of `next`."""

    def __init__(self) -> None:
        self._received: asyncio.Queue[Token | Sent | ApiError] = asyncio.Queue()
        self.over = False

    def put(self, item: Token | Sent | ApiError) -> None:
        """Hand over what came from the engine."""
        self.over = not isinstance(item, Token) or item.finish_reason is not None
        self._received.put_nowait(item)

    async def next(self) -> Token:
        """The next token. Raises ApiError when the engine refused or failed the request."""
        item = await self._item()
        assert isinstance(item, Token)
        return item

    async def sent(self) -> Sent:
        """That the KV of a request that sends it has left. Raises ApiError when it failed."""
        item = await self._item()
        assert isinstance(item, Sent)
        return item

    def unclaimed(self) -> list[str]:
        """Tickets that came and that nobody took."""
        left = [self._received.get_nowait() for _ in range(self._received.qsize())]
        return [item.ticket for item in left if isinstance(item, Sent)]

    async def _item(self) -> Token | Sent:
        item = await self._received.get()
        if isinstance(item, ApiError):
            raise item
        return item
