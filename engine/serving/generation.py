"""A request as the HTTP process understood it."""

from dataclasses import dataclass

from engine.core.request import HandOver
from engine.core.slo import SLO


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are chosen. temperature 0: the most likely one. seed None: not asked for by the client."""

    temperature: float = 1.0
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Generation:
    """What the engine is asked for.

    arrived_at_ns: CLOCK_MONOTONIC when the HTTP process had the whole request: waiting counts from here.
    first_token, ticket: of one that was prefilled by another instance, and by which its KV is found.
    """

    request_id: str
    arrived_at_ns: int
    token_ids: tuple[int, ...]
    max_tokens: int
    ignore_eos: bool
    sampling: Sampling
    slo: SLO
    task: str
    hand_over: HandOver = HandOver.NONE
    first_token: int | None = None
    ticket: str = ""


@dataclass(frozen=True, slots=True)
class ReplyOptions:
    """How the client wants its answer. chat: the reply is a chat message, not a text."""

    chat: bool
    stream: bool
    include_usage: bool
