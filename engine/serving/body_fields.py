"""Typed reading of a request's JSON body; whatever is wrong becomes a 400 naming the field."""

import json
import math
import zlib
from collections.abc import Mapping
from typing import Any

from engine.serving.api_error import ApiError, bad_request

GZIP_OR_DEFLATE = zlib.MAX_WBITS | 32
"""zlib's word for: look which of the two it is."""


def unpacked(body: bytes, encoding: str, most_bytes: int) -> bytes:
    """The body without its Content-Encoding. A small body that stands for a huge one is not unpacked to its end."""
    if encoding.lower() in ("", "identity"):
        return body
    if encoding.lower() not in ("gzip", "deflate"):
        raise ApiError(415, f"Content-Encoding {encoding[:60]!r} is not supported (gzip and deflate are)")
    unpacking = zlib.decompressobj(GZIP_OR_DEFLATE)
    try:
        plain = unpacking.decompress(body, most_bytes + 1)
    except zlib.error as error:
        raise ApiError(400, f"the body does not match its Content-Encoding {encoding}") from error
    if len(plain) > most_bytes:
        raise ApiError(413, f"the unpacked body is larger than the limit of {most_bytes} bytes")
    if not unpacking.eof or unpacking.unused_data:
        raise ApiError(400, f"the body does not match its Content-Encoding {encoding}: it ends too early, or goes on")
    return plain


def read_object(body: bytes) -> dict[str, Any]:
    """The JSON object in these bytes."""
    try:
        given = json.loads(body.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ApiError(400, f"the body is not valid UTF-8 (byte {error.start})") from error
    except json.JSONDecodeError as error:
        raise ApiError(400, f"the body is not valid JSON ({error})") from error
    except (ValueError, RecursionError) as error:
        reason = "nested too deep" if isinstance(error, RecursionError) else "a number has too many digits"
        raise ApiError(400, f"the body is not valid JSON for this server ({reason})") from error
    if not isinstance(given, dict):
        raise ApiError(400, f"the body must be a JSON object, got {_shown(given)}")
    return given


class Fields:
    """One JSON object of a body. prefix: where it stands in the body, for sentences. null counts as absent."""

    def __init__(self, given: Mapping[str, Any], prefix: str = "") -> None:
        self._given = given
        self._prefix = prefix

    def name(self, field: str) -> str:
        """The field's full name."""
        return self._prefix + field

    def get(self, field: str) -> Any:
        """The value as it is; None when absent."""
        return self._given.get(field)

    def boolean(self, field: str, default: bool = False) -> bool:
        """true or false."""
        value = self.get(field)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise bad_request(self.name(field), f"must be true or false, got {_shown(value)}")
        return value

    def integer(self, field: str, least: int, most: int) -> int | None:
        """A whole number between least and most, ends included."""
        value = self.get(field)
        if value is None:
            return None
        if type(value) is not int or not least <= value <= most:
            raise bad_request(
                self.name(field), f"must be a whole number between {least} and {most}, got {_shown(value)}"
            )
        return value

    def number(self, field: str, least: float, most: float) -> float | None:
        """A finite number between least and most, ends included."""
        value = self.get(field)
        if value is None:
            return None
        # The comparison refuses NaN, infinities, and integers too large for a float.
        if type(value) not in (int, float) or not least <= value <= most or not math.isfinite(value):
            raise bad_request(self.name(field), f"must be a number between {least:g} and {most:g}, got {_shown(value)}")
        return float(value)

    def text(self, field: str, most_characters: int) -> str | None:
        """A string of limited length."""
        value = self.get(field)
        if value is None:
            return None
        if not isinstance(value, str) or len(value) > most_characters:
            raise bad_request(
                self.name(field), f"must be a string of at most {most_characters} characters, got {_shown(value)}"
            )
        return value

    def object(self, field: str) -> "Fields":
        """A nested object; empty when absent."""
        value = self.get(field)
        if value is None:
            return Fields({}, f"{self.name(field)}.")
        if not isinstance(value, dict):
            raise bad_request(self.name(field), f"must be an object, got {_shown(value)}")
        return Fields(value, f"{self.name(field)}.")


def _shown(value: object) -> str:
    """A value short enough for a sentence."""
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return "an object"
    try:
        text = json.dumps(value)
    except ValueError:
        return "a number of too many digits"
    return text if len(text) <= 60 else text[:57] + "..."
