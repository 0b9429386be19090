"""What the golden server answers, byte by byte: steps at instants, and builders for the usual ones."""

import asyncio
import dataclasses
import itertools
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class End(StrEnum):
    """How a reply ends after its last step."""

    KEEP = "keep"  # the body ends properly, the connection stays
    CLOSE = "close"  # the body ends properly, then the connection is closed
    CUT = "cut"  # the connection closes inside the body
    RESET = "reset"  # as CUT, with a TCP reset
    HANG = "hang"  # nothing more comes; the server waits for the client to leave


@dataclass(frozen=True)
class Step:
    """Bytes written `at_s` after the request arrived, in one send."""

    at_s: float
    data: bytes


@dataclass(frozen=True)
class Script:
    """One whole reply. The head goes out with the first step (or at the end, without steps).

    until: nothing is written before it is set; then all steps that are due go out.
    """

    steps: tuple[Step, ...] = ()
    end: End = End.KEEP
    status: int = 200
    content_type: str = "text/event-stream"
    headers: dict[str, str] = field(default_factory=dict)
    until: asyncio.Event | None = None

    def in_one_send(self, at_s: float | None = None) -> "Script":
        """All bytes at once, at the instant of the last step."""
        at_s = self.steps[-1].at_s if at_s is None else at_s
        return dataclasses.replace(self, steps=(Step(at_s, b"".join(step.data for step in self.steps)),))

    def split_every(self, count: int, gap_s: float = 0.002) -> "Script":
        """Each step's bytes cut into sends of `count` bytes, `gap_s` apart; a step waits for the one before it."""
        pieces: list[Step] = []
        at_s = 0.0
        for step in self.steps:
            at_s = max(at_s, step.at_s)
            for at in range(0, len(step.data), count):
                pieces.append(Step(at_s, step.data[at : at + count]))
                at_s += gap_s
        return dataclasses.replace(self, steps=tuple(pieces))


@dataclass
class Seen:
    """A request as it arrived. left_at_ns: the client went before the reply ended. Instants: CLOCK_MONOTONIC."""

    index: int
    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    arrived_at_ns: int
    connection: int
    left_at_ns: int | None = None
    ended_at_ns: int | None = None

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.body) if self.body else {}

    @property
    def prompt_tokens(self) -> int:
        prompt = self.json.get("prompt", [])
        return len(prompt) if isinstance(prompt, list) else len(str(prompt).split())


Respond = Callable[[Seen], Script]
"""A golden server's behaviour: the script of each request."""

MODEL = "golden"
DONE = b"data: [DONE]\n\n"
PING = b": ping\n\n"


def event(payload: object, *, end: bytes = b"\n", space: bool = True) -> bytes:
    """One server-sent event of a JSON payload (or of bytes as they are)."""
    data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return b"data:" + (b" " if space else b"") + data + end + end


def chunk(choices: Sequence[dict[str, Any]] | None, **more: Any) -> dict[str, Any]:
    return {"id": "cmpl-golden", "object": "text_completion", "model": MODEL, "choices": choices, **more}


def token(text: str = "tok", finish: str | None = None, **more: Any) -> dict[str, Any]:
    return chunk([{"index": 0, "text": text, "finish_reason": finish, **more}])


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    """A chat chunk, e.g. delta(role="assistant", content="") or delta(reasoning_content="hm")."""
    return chunk([{"index": 0, "delta": fields, "finish_reason": finish}])


def usage(
    prompt: int, completion: int, choices: Sequence[dict[str, Any]] | None = (), cached: int | None = None
) -> Any:
    stated: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
    if cached is not None:
        stated["prompt_tokens_details"] = {"cached_tokens": cached}
    return chunk(None if choices is None else list(choices), usage=stated)


def error(message: str = "engine died", code: int = 500) -> dict[str, Any]:
    return {"error": {"message": message, "type": "server_error", "code": code}}


def events(*timed: tuple[float, object], end: End = End.KEEP) -> Script:
    """A stream of (at_s, payload or raw bytes) pairs; payload objects become events, bytes go as they are."""
    return Script(
        tuple(Step(at_s, one if isinstance(one, bytes) else event(one)) for at_s, one in timed),
        end,
    )


def complete(seen: Seen, first_s: float = 0.0, gap_s: float = 0.0, tokens: int | None = None) -> Script:
    """A proper reply: `tokens` (default: max_tokens) tokens, usage with the true prompt length, [DONE]."""
    count = seen.json["max_tokens"] if tokens is None else tokens
    instants = [first_s + gap_s * index for index in range(count)]
    steps = [
        Step(at_s, event(token(finish="length" if index + 1 == count else None))) for index, at_s in enumerate(instants)
    ]
    last_s = instants[-1] if instants else first_s
    steps.append(Step(last_s, event(usage(seen.prompt_tokens, count)) + DONE))
    return Script(tuple(steps))


def refused(status: int = 503, message: str = "overloaded") -> Script:
    """An error answer with a JSON body."""
    return Script(
        (Step(0.0, json.dumps(error(message, status)).encode()),), status=status, content_type="application/json"
    )


def never() -> Script:
    """Accepts the request and never answers."""
    return Script(end=End.HANG)


def always(script: Script) -> Respond:
    return lambda _: script


def after(first_s: float, gap_s: float = 0.0) -> Respond:
    """Every request is answered completely, the first token `first_s` after it arrived."""
    return lambda seen: complete(seen, first_s, gap_s)


def once(told: asyncio.Event) -> Respond:
    """Every request is answered completely, but none before `told` is set."""
    return lambda seen: dataclasses.replace(complete(seen), until=told)


def in_turn(*responds: Respond | Script) -> Respond:
    """The first request gets the first behaviour, and so on, round and round: in_turn(refused(), after(0))."""
    turns = itertools.cycle([always(one) if isinstance(one, Script) else one for one in responds])
    return lambda seen: next(turns)(seen)


def by_request_id(scripts: dict[str, Respond | Script], otherwise: Respond | None = None) -> Respond:
    """The behaviour of each X-Request-Id."""

    def respond(seen: Seen) -> Script:
        one = scripts.get(seen.headers.get("x-request-id", ""), otherwise or after(0.0))
        return one if isinstance(one, Script) else one(seen)

    return respond


def capacity(rate_rps: float) -> Respond:
    """Serves one request at a time, in order, at `rate_rps`; a client that leaves has used its turn."""
    free_at_ns = 0

    def respond(seen: Seen) -> Script:
        nonlocal free_at_ns
        free_at_ns = max(free_at_ns, seen.arrived_at_ns) + round(1e9 / rate_rps)
        return complete(seen, (free_at_ns - seen.arrived_at_ns) / 1e9)

    return respond


def noop() -> Respond:
    """One token, always the same bytes, without reading the request: as fast as this server gets."""
    script = Script((Step(0.0, event(token(finish="length")) + event(usage(1, 1)) + DONE),))
    return lambda _: script


def stamped() -> Respond:
    """One token at once; stated as cached tokens: the nanoseconds from the request's arrival until it was made."""

    def respond(seen: Seen) -> Script:
        body = event(token(finish="length"))
        taken_ns = time.monotonic_ns() - seen.arrived_at_ns
        return Script((Step(0.0, body + event(usage(1, 1, cached=taken_ns)) + DONE),))

    return respond
