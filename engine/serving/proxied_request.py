"""One request on its way through a proxy: prefill instance, room on a decode instance, hand-over, decode instance."""

import asyncio
import dataclasses
import logging
from typing import Protocol

from engine.core.request import HandOver
from engine.serving.api_error import ApiError
from engine.serving.engine_process import EngineProcess, Phase
from engine.serving.generation import Generation
from engine.serving.kept_instance import KeptInstance
from engine.serving.open_request import OpenRequest, Token

LOG = logging.getLogger(__name__)
ATTEMPTS = 3
"""Instances that one part of a request is tried on, where they die before they gave its first token."""


class Dispatcher(Protocol):
    """What a request asks of its proxy."""

    async def prefill_instance(self, generation: Generation, may_wait: bool) -> KeptInstance:
        """Where its prompt is to be prefilled. Raises ApiError when no instance is there (may_wait: or comes)."""
        ...

    def prefilled(self, request_id: str) -> None:
        """Its prefill is over, one way or the other."""
        ...

    async def decode_instance(self, generation: Generation) -> KeptInstance:
        """Where it has room to decode; waits for it. What it had before is given back."""
        ...

    def sent(self, ticket: str) -> None:
        """KV is on its way; it is kept until it is `received`."""
        ...

    def received(self, ticket: str) -> None:
        """The KV is wanted no more."""
        ...

    def over(self, request_id: str) -> None:
        """The request has ended."""
        ...


class ProxiedRequest:
    """A generation under way (`engine.serving.served_engine.OpenGeneration`).

    Before its first token a request outlives its prefill instance: it begins anew on another one. Between its KV's
    departure and its second token it outlives its decode instance. Else it fails with the instance that has it.
    """

    def __init__(self, generation: Generation, dispatcher: Dispatcher) -> None:
        self._generation = generation
        self._dispatcher = dispatcher
        self._answers: asyncio.Queue[Token | ApiError] = asyncio.Queue()
        self._touched: list[EngineProcess] = []
        self._ticket = ""
        self._serving = asyncio.create_task(self._serve())

    async def next(self) -> Token:
        """The next token. Raises ApiError when the request was refused or failed."""
        item = await self._answers.get()
        if isinstance(item, ApiError):
            raise item
        return item

    def close(self) -> None:
        """The client has its answer, or left."""
        self._serving.cancel()

    def fail(self, error: ApiError) -> None:
        """No instance will ever go on with it."""
        self._answers.put_nowait(error)
        self._serving.cancel()

    async def _serve(self) -> None:
        request_id = self._generation.request_id
        try:
            await self._run()
        except ApiError as error:
            self._answers.put_nowait(error)
        except Exception:
            LOG.exception("request %s failed in the proxy", request_id)
            self._answers.put_nowait(ApiError(500, "the proxy failed on this request; its log says why"))
        finally:
            # Also when the client left: instances cancel what they have not finished.
            for engine in self._touched:
                engine.close(request_id)
            if self._ticket:
                self._dispatcher.received(self._ticket)
            self._dispatcher.prefilled(request_id)
            self._dispatcher.over(request_id)

    async def _run(self) -> None:
        engine, opened, token = await self._first_token()
        self._answers.put_nowait(token)
        if token.finish_reason is not None:
            return
        decode = await self._hand_over(engine, opened)
        await self._other_tokens(decode, token.token_id)

    async def _first_token(self) -> tuple[EngineProcess, OpenRequest, Token]:
        stays = self._generation.max_tokens == 1
        part = dataclasses.replace(self._generation, hand_over=HandOver.NONE if stays else HandOver.SENDS)
        for attempt in range(1, ATTEMPTS + 1):
            instance = await self._dispatcher.prefill_instance(part, may_wait=attempt > 1)
            engine = self._touch(instance)
            try:
                opened = engine.open(part)
                return engine, opened, await opened.next()
            except ApiError as error:
                _raise_unless_lost(error, engine, instance, attempt)
            finally:
                self._dispatcher.prefilled(part.request_id)
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _hand_over(self, engine: EngineProcess, opened: OpenRequest) -> KeptInstance:
        """Room on a decode instance, then the KV's departure; ends at once when the prefill instance does."""
        sent = asyncio.create_task(self._until_sent(opened))
        room = asyncio.create_task(self._dispatcher.decode_instance(self._generation))
        try:
            await asyncio.wait([sent, room], return_when=asyncio.FIRST_COMPLETED)
            if sent.done():
                sent.result()  # nothing was asked to be sent yet: it raises
            instance = room.result()
            engine.send_kv(self._generation.request_id, instance.name)
            await sent
            return instance
        finally:
            for task in (sent, room):
                task.cancel()

    async def _until_sent(self, opened: OpenRequest) -> None:
        self._ticket = (await opened.sent()).ticket
        self._dispatcher.sent(self._ticket)

    async def _other_tokens(self, instance: KeptInstance, first_token: int) -> None:
        part = dataclasses.replace(
            self._generation, hand_over=HandOver.RECEIVES, first_token=first_token, ticket=self._ticket
        )
        for attempt in range(1, ATTEMPTS + 1):
            engine = self._touch(instance)
            begun = False
            try:
                opened = engine.open(part)
                finish_reason = None
                while finish_reason is None:
                    token = await opened.next()
                    if not begun:
                        begun = True
                        self._dispatcher.received(self._ticket)
                    self._answers.put_nowait(token)
                    finish_reason = token.finish_reason
                return
            except ApiError as error:
                if begun:
                    raise
                _raise_unless_lost(error, engine, instance, attempt)
            instance = await self._dispatcher.decode_instance(self._generation)

    def _touch(self, instance: KeptInstance) -> EngineProcess:
        engine = instance.engine
        assert engine is not None  # it was chosen because it is ready
        self._touched.append(engine)
        return engine


def _raise_unless_lost(error: ApiError, engine: EngineProcess, instance: KeptInstance, attempt: int) -> None:
    """Go on only where the instance died, and not for ever: a request may be what kills them."""
    if engine.phase is Phase.READY or attempt == ATTEMPTS:
        raise error
    LOG.warning("%s was lost; its request is tried elsewhere", instance.name)
