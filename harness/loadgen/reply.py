"""What the events of one streamed reply amount to: tokens, usage, errors, and how the request ended. No I/O."""

import json
from dataclasses import dataclass
from typing import Any

from engine.core.record import Status
from harness.loadgen.sse import SSEEvent

CHANNELS = (
    "content",
    "reasoning_content",
    "reasoning",
    "thinking",
    "refusal",
    "tool_calls",
    "function_call",
    "audio",
)
"""Fields of a chat delta that carry generated tokens; `role` does not."""


class ReplyError(Exception):
    """The reply says, or shows, that the request failed. status: FAILED or REJECTED. http_status: where it says so."""

    def __init__(self, reason: str, status: Status = Status.FAILED, http_status: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.status = status
        self.http_status = http_status


@dataclass(slots=True)
class Usage:
    """Token counts as the server states them; None = not stated."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None


class Reply:
    """Collects one stream. `at_ns` of a feed is the instant its bytes arrived.

    max_tokens, ignore_eos: as asked; with ignore_eos a reply that stops early is truncated.
    """

    def __init__(self, max_tokens: int, ignore_eos: bool) -> None:
        self.max_tokens = max_tokens
        self.ignore_eos = ignore_eos
        self.first_token_at_ns: int | None = None
        self.last_token_at_ns: int | None = None
        self.tbt_max_ns: int | None = None
        self.counted_tokens = 0
        self.usage = Usage()
        self.model: str | None = None
        self.finish_reason: str | None = None
        self.done = False
        self._finished_at_ns: int | None = None
        self._chunks_at_ns: list[int] = []

    def feed(self, event: SSEEvent, at_ns: int) -> None:
        """Take one event. Raises ReplyError for an error object or an event that cannot be read."""
        if self.done:
            return
        if event.data.strip() == b"[DONE]":
            self.done = True
            return
        body = _object(event.data)
        if body.get("error") or body.get("object") == "error" or event.name == "error":
            raise _stated_error(body)
        if isinstance(body.get("model"), str):
            self.model = body["model"]
        if body.get("usage"):
            self.usage = _usage(body["usage"])
        tokens = 0
        for choice in body.get("choices") or ():
            carried = _tokens_in(choice)
            tokens += carried
            if carried or isinstance(choice.get("text"), str):
                self._chunks_at_ns.append(at_ns)
            if choice.get("finish_reason"):
                self.finish_reason = str(choice["finish_reason"])
                self._finished_at_ns = at_ns
        if tokens:
            self.counted_tokens += tokens
            self._token_read(at_ns)

    def close(self) -> None:
        """The stream is over.

        A token may have no text of its own (part of a character), and vLLM and SGLang do not say its id unasked. When
        the server's usage states as many tokens as chunks of text came, each of them was one, the empty ones, too.
        When usage states tokens and none was seen, the chunk that ended the choice stands for them: it came no earlier
        than they did.
        """
        stated = self.usage.completion_tokens
        if stated and stated == len(self._chunks_at_ns) > self.counted_tokens:
            self.first_token_at_ns = self.last_token_at_ns = self.tbt_max_ns = None
            for at_ns in self._chunks_at_ns:
                self._token_read(at_ns)
        elif self.first_token_at_ns is None and stated and self._finished_at_ns is not None:
            self._token_read(self._finished_at_ns)

    @property
    def output_tokens(self) -> int:
        """Tokens received: the server's usage, else counted from events."""
        stated = self.usage.completion_tokens
        return self.counted_tokens if stated is None else stated

    @property
    def output_estimated(self) -> bool:
        """Whether `output_tokens` had to be counted from events."""
        return self.usage.completion_tokens is None

    def outcome(self, broken: str = "") -> tuple[Status, str]:
        """Status and reason of a stream that is over. broken: how it broke, if it did."""
        if self.finish_reason in ("abort", "error"):
            return Status.FAILED, f"the server ended the reply with finish_reason {self.finish_reason!r}"
        if self.first_token_at_ns is None:
            return Status.FAILED, broken or "no token: the reply ended without one"
        if self._complete():
            return Status.OK, ""
        got = f"{self.output_tokens} of {self.max_tokens} tokens"
        if broken:
            return Status.TRUNCATED, f"the stream broke after {got}: {broken}"
        ended = f" (finish_reason {self.finish_reason!r})" if self.finish_reason else ""
        return Status.TRUNCATED, f"the stream closed after {got}{ended}"

    def _complete(self) -> bool:
        if self.output_tokens >= self.max_tokens:
            return True
        if self.finish_reason == "length":
            # Without usage an event may have carried several tokens: the server's word that all came is taken.
            return self.output_estimated
        return self.finish_reason is not None and not self.ignore_eos

    def _token_read(self, at_ns: int) -> None:
        if self.first_token_at_ns is None or self.last_token_at_ns is None:
            self.first_token_at_ns = at_ns
        elif at_ns > self.last_token_at_ns:
            # Events of one read share its instant: they are no gap.
            self.tbt_max_ns = max(self.tbt_max_ns or 0, at_ns - self.last_token_at_ns)
        self.last_token_at_ns = at_ns


def stated_error(body: bytes, http_status: int) -> ReplyError:
    """The error a non-200 (or not streamed) body states; 429 and 503 are rejections."""
    status = Status.REJECTED if http_status in (429, 503) else Status.FAILED
    try:
        reason = _stated_error(_object(body)).reason
    except ReplyError:
        reason = body[:200].decode("utf-8", "replace").strip()
    return ReplyError(f"HTTP {http_status}: {reason}" if reason else f"HTTP {http_status}", status, http_status)


def _object(data: bytes) -> dict[str, Any]:
    try:
        body = json.loads(data)
    except ValueError as error:
        raise ReplyError(f"cannot read an event of the stream: {error}: {data[:80]!r}") from error
    if not isinstance(body, dict) or not _list_of_objects(body.get("choices")):
        raise ReplyError(f"an event of the stream is not a completion object: {data[:80]!r}")
    return body


def _list_of_objects(choices: object) -> bool:
    return choices is None or (isinstance(choices, list) and all(isinstance(choice, dict) for choice in choices))


def _tokens_in(choice: dict[str, Any]) -> int:
    token_ids = choice.get("token_ids")
    if isinstance(token_ids, list) and token_ids:
        return len(token_ids)
    if choice.get("text"):
        return 1
    delta = choice.get("delta")
    return 1 if isinstance(delta, dict) and any(delta.get(channel) for channel in CHANNELS) else 0


def _usage(stated: object) -> Usage:
    if not isinstance(stated, dict):
        raise ReplyError(f"usage is not an object: {stated!r}")
    details = stated.get("prompt_tokens_details") or {}
    counts = {
        "prompt_tokens": stated.get("prompt_tokens"),
        "completion_tokens": stated.get("completion_tokens"),
        "cached_tokens": details.get("cached_tokens") if isinstance(details, dict) else None,
    }
    for name, count in counts.items():
        if count is not None and (type(count) is not int or count < 0):
            raise ReplyError(f"usage.{name} is not a count: {count!r}")
    return Usage(**counts)


def _stated_error(body: dict[str, Any]) -> ReplyError:
    error = body.get("error") or body
    if not isinstance(error, dict):
        return ReplyError(str(error))
    code = error.get("code")
    reason = str(error.get("message") or error.get("type") or error)
    return ReplyError(reason, Status.REJECTED if str(code) in ("429", "503") else Status.FAILED)
