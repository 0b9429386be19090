"""Errors a client is told of, in OpenAI's shape."""

from collections.abc import Mapping
from typing import Any

RETRY_AFTER_S = 1
"""What a client is told to wait when the server is full, starting or stopping."""


class ApiError(Exception):
    """One request cannot be served. message: one clear sentence. field: what of the body is wrong."""

    def __init__(self, status: int, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.field = field

    def body(self) -> dict[str, Any]:
        """The JSON object of the reply, also used inside a stream that has begun."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        return {"error": {"message": self.message, "type": kind, "param": self.field, "code": self.status}}

    def headers(self) -> Mapping[str, str]:
        """What goes with the status: when to come back, how to prove who one is."""
        match self.status:
            case 401:
                return {"WWW-Authenticate": "Bearer"}
            case 429 | 503:
                return {"Retry-After": str(RETRY_AFTER_S)}
            case _:
                return {}


def bad_request(field: str, what: str) -> ApiError:
    """A 400 whose sentence begins with the field's name."""
    return ApiError(400, f"{field} {what}", field)
