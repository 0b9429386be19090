"""What stands before every route: errors leave as JSON, and a key may be asked for."""

import hmac
import logging
import os
from collections.abc import Awaitable, Callable

from aiohttp import hdrs, web
from aiohttp.typedefs import Middleware

from engine.serving.api_error import ApiError
from engine.serving.settings import SettingsError

LOG = logging.getLogger(__name__)
OPEN_PATHS = ("/health",)
"""Answered without a key: whoever watches over the server need not know it."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def read_api_key(variable: str) -> str | None:
    """The key in this environment variable, which is removed: no child of this process gets to see it.

    None when no variable is named. Raises SettingsError when it holds no key.
    """
    if not variable:
        return None
    key = os.environ.pop(variable, "")
    if not key.strip():
        raise SettingsError(f"--api-key-env names {variable}, which is not set")
    return key


def bearer_required(api_key: str) -> Middleware:
    """A 401 for whoever does not send `Authorization: Bearer <api_key>`. How long it takes tells nothing of the key."""
    wanted = api_key.encode()

    @web.middleware
    async def checked(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path not in OPEN_PATHS:
            scheme, _, given = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
            # Headers are bytes; aiohttp keeps those that are no UTF-8 as surrogates.
            same = hmac.compare_digest(given.strip().encode(errors="surrogateescape"), wanted)
            if scheme.lower() != "bearer" or not same:
                raise ApiError(401, "this server asks for its key: send the header Authorization: Bearer <key>")
        return await handler(request)

    return checked


@web.middleware
async def errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every error leaves as OpenAI's error object; an unforeseen one is logged and becomes a 500."""
    try:
        return await handler(request)
    except ApiError as error:
        return _reply(error)
    except ConnectionError:
        raise  # the client left between two writes: aiohttp ends the connection, nobody is to be told
    except web.HTTPRequestEntityTooLarge:
        return _reply(ApiError(413, f"the body is larger than the limit of {request.client_max_size} bytes"))
    except web.RequestPayloadError:
        # aiohttp could not undo the chunks: the sender's doing
        return _reply(ApiError(400, "the body does not match its Transfer-Encoding"))
    except web.HTTPException as error:
        reply = _reply(ApiError(error.status, f"{request.method} {request.path}: {error.reason}"))
        if hdrs.ALLOW in error.headers:
            reply.headers[hdrs.ALLOW] = error.headers[hdrs.ALLOW]
        return reply
    except Exception:
        # A fault of this server: the client gets a sentence, the log gets the traceback.
        LOG.exception("%s %s failed", request.method, request.path)
        return _reply(ApiError(500, "the server failed on this request; its log says why"))


def _reply(error: ApiError) -> web.Response:
    return web.json_response(error.body(), status=error.status, headers=error.headers())
