"""Incremental parser of server-sent events (WHATWG HTML, section 9.2), over bytes.

It works on whole lines of bytes and decodes nothing, so that a read may end anywhere, inside a
UTF-8 character too.
"""

import re
from dataclasses import dataclass

_LINE_END = re.compile(rb"\r\n|\r|\n")
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class SSEEvent:
    """One event. name: the `event:` field, "" when absent. data: its `data:` lines joined by line feeds."""

    data: bytes
    name: str = ""


class SSEParser:
    """Feed it reads as they come; it gives back the events each read completed."""

    def __init__(self) -> None:
        self._tail = b""
        self._skip_line_feed = False
        self._at_start = True
        self._data: list[bytes] = []
        self._name = ""

    def feed(self, read: bytes) -> list[SSEEvent]:
        """Events completed by these bytes, in order."""
        if self._skip_line_feed and read:
            # The carriage return before it has already ended the line.
            read = read.removeprefix(b"\n")
            self._skip_line_feed = False
        if not read:
            return []
        text = self._tail + read
        if self._at_start:
            if len(text) < len(_BOM) and _BOM.startswith(text):
                self._tail = text
                return []
            text = text.removeprefix(_BOM)
            self._at_start = False
        lines = _LINE_END.split(text)
        self._tail = lines.pop()
        self._skip_line_feed = text.endswith(b"\r")
        return [event for line in lines if (event := self._line(line)) is not None]

    def close(self) -> list[SSEEvent]:
        """The event left open at the end of the stream: servers forget the last empty line."""
        last = [self._line(self._tail), self._line(b"")] if self._tail else [self._line(b"")]
        self._tail = b""
        return [event for event in last if event is not None]

    def _line(self, line: bytes) -> SSEEvent | None:
        if not line:
            event = SSEEvent(b"\n".join(self._data), self._name) if self._data else None
            self._data, self._name = [], ""
            return event
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = value.decode("utf-8", "replace")
        # A line that starts with a colon is a comment; `id`, `retry` and unknown fields say nothing about tokens.
        return None
