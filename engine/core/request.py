"""A request as the scheduler sees it: lengths, instants and objectives, never token ids."""

from dataclasses import dataclass, field

from engine.core.slo import NO_SLO_DUE_NS, SLO


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt to prefill and up to `max_tokens` tokens to generate.

    request_id: unique among live requests.
    seq: order of arrival, given by the event monitor; breaks every tie.
    arrived_at_ns: instant of arrival on the engine's own clock (never the client's).
    prompt_tokens, max_tokens: both at least 1.
    task: the class the request belongs to ("text", "search", ...); for reports, never for decisions.
    due_at_ns: the instant the request is ordered by: the deadline, or 30 s after arrival without an SLO.
    """

    request_id: str
    seq: int
    arrived_at_ns: int
    prompt_tokens: int
    max_tokens: int = 1
    slo: SLO = field(default_factory=SLO)
    task: str = ""
    due_at_ns: int = field(init=False)

    def __post_init__(self) -> None:
        if self.prompt_tokens < 1:
            raise ValueError(f"request {self.request_id}: prompt_tokens must be at least 1, got {self.prompt_tokens}")
        if self.max_tokens < 1:
            raise ValueError(f"request {self.request_id}: max_tokens must be at least 1, got {self.max_tokens}")
        wait = NO_SLO_DUE_NS if self.slo.ttft_ns is None else self.slo.ttft_ns
        object.__setattr__(self, "due_at_ns", self.arrived_at_ns + wait)

    @property
    def has_slo(self) -> bool:
        """Whether the request states a TTFT SLO."""
        return self.slo.ttft_ns is not None

    @property
    def total_tokens(self) -> int:
        """KV positions the request can come to hold."""
        return self.prompt_tokens + self.max_tokens
