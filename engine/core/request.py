"""A request as the scheduler sees it: lengths, instants and objectives, never token ids."""

from dataclasses import dataclass, field
from enum import StrEnum

from engine.core.slo import NO_SLO_DUE_NS, SLO


class HandOver(StrEnum):
    """What happens to a request between its first and its second token."""

    NONE = "none"  # it goes on where it is
    SENDS = "sends"  # a prefill instance: its KV leaves for a decode instance
    RECEIVES = "receives"  # a decode instance: it comes with its first token and its KV


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt to prefill and up to `max_tokens` tokens to generate.

    request_id: unique among live requests.
    seq: order of arrival, given by the event monitor; breaks every tie.
    arrived_at_ns: instant of arrival on the engine's own clock (never the client's).
    prompt_tokens, max_tokens: both at least 1.
    task: the class the request belongs to ("text", "search", ...); for reports, never for decisions.
    hand_over: whether another instance does part of it.
    due_at_ns: the instant the request is ordered by: the deadline, or 30 s after arrival without an SLO.
    """

    request_id: str
    seq: int
    arrived_at_ns: int
    prompt_tokens: int
    max_tokens: int = 1
    slo: SLO = field(default_factory=SLO)
    task: str = ""
    hand_over: HandOver = HandOver.NONE
    due_at_ns: int = field(init=False)

    def __post_init__(self) -> None:
        if self.prompt_tokens < 1:
            raise ValueError(f"request {self.request_id}: prompt_tokens must be at least 1, got {self.prompt_tokens}")
        if self.max_tokens < 1:
            raise ValueError(f"request {self.request_id}: max_tokens must be at least 1, got {self.max_tokens}")
        object.__setattr__(self, "hand_over", HandOver(self.hand_over))
        wait = NO_SLO_DUE_NS if self.slo.ttft_ns is None else self.slo.ttft_ns
        object.__setattr__(self, "due_at_ns", self.arrived_at_ns + wait)

    @property
    def has_slo(self) -> bool:
        """Whether the request states a TTFT SLO."""
        return self.slo.ttft_ns is not None

    @property
    def total_tokens(self) -> int:
        """KV positions the request can come to hold on this instance."""
        return self.prompt_tokens + (0 if self.hand_over is HandOver.SENDS else self.max_tokens)
