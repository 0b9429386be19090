"""A client that leaves while its first token is on the way is no fault of the server: nothing is raised or logged."""

import asyncio
from types import SimpleNamespace

import pytest
from aiohttp import ClientConnectionResetError, web

from engine.serving.application import Application, Service
from engine.serving.generation import ReplyOptions
from engine.serving.open_request import Token
from engine.serving.reply_body import ReplyWriter
from engine.serving.settings import ServerSettings


class OneToken:
    async def next(self) -> Token:
        return Token(7, "length")


def test_a_client_that_left_before_the_headers_ends_the_stream_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    async def gone(_response: web.StreamResponse, _request: web.BaseRequest) -> None:
        raise ClientConnectionResetError("Cannot write to closing transport")

    monkeypatch.setattr(web.StreamResponse, "prepare", gone)
    application = Application(SimpleNamespace(), ServerSettings())  # type: ignore[arg-type]
    application.serve(Service("m", SimpleNamespace(tokenizer=None)))  # type: ignore[arg-type]
    options = ReplyOptions(chat=False, stream=True, include_usage=True)
    generation = SimpleNamespace(request_id="r", arrived_at_ns=0)
    answer = application._stream(
        None,  # type: ignore[arg-type]
        OneToken(),
        generation,  # type: ignore[arg-type]
        options,
        ReplyWriter("r", "m", 0, 1, options),
    )
    assert not asyncio.run(answer).prepared
