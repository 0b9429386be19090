"""What a run sends to, and how the client behaves."""

import collections.abc as c
from dataclasses import dataclass, field
from enum import StrEnum

from yarl import URL

OWN_FIELDS = frozenset({"model", "prompt", "max_tokens", "stream", "stream_options", "ignore_eos"})
"""Request fields the client sets from the plan and its settings; extra fields may not replace them."""


class SLOStyle(StrEnum):
    """How a request states its SLO to the server."""

    FIELDS = "fields"  # ttft_slo_s, tbt_slo_s, task in the body
    VLLM_XARGS = "vllm_xargs"  # vllm_xargs: {ttft_slo, tbt_slo}, in seconds
    PRIORITY_LOW_FIRST = "priority_low_first"  # priority: the TTFT SLO in ms, as vLLM's priority scheduling takes it
    PRIORITY_HIGH_FIRST = "priority_high_first"  # the same, negative, as SGLang's takes it
    NONE = "none"  # the server is told nothing


class ShowProgress(StrEnum):
    """How progress is shown, always on stderr."""

    AUTO = "auto"  # a bar on a terminal that has rich, else plain lines
    PLAIN = "plain"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class Target:
    """An OpenAI-compatible server.

    base_url: with or without the trailing /v1.
    model: the name sent, and the name the server must answer with.
    """

    base_url: str
    model: str
    api_key: str | None = field(default=None, repr=False)
    slo_style: SLOStyle = SLOStyle.FIELDS

    def __post_init__(self) -> None:
        if not self.base_url.startswith(("http://", "https://")):
            raise ValueError(f"target base_url must start with http:// or https://, got {self.base_url!r}")
        try:
            address = URL(self.base_url)
            (address.host or "").encode("idna")  # what a name server can be asked for
        except ValueError as error:
            raise ValueError(f"target base_url {self.base_url!r} is no address: {error}") from error
        if not address.host or address.query_string or address.fragment:
            raise ValueError(f"target base_url must have a host and nothing behind its path, got {self.base_url!r}")
        object.__setattr__(self, "slo_style", SLOStyle(self.slo_style))

    def url(self, path: str) -> str:
        """Address of an API path such as `completions`."""
        return f"{self.base_url.rstrip('/').removesuffix('/v1')}/v1/{path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayerSettings:
    """How the client behaves; the two deadlines have no default on purpose.

    request_timeout_s: from the instant a request is sent to its end; a time-out is a miss.
    drain_s: how long after the last due instant replies are awaited; what is then open is unfinished.
    give_up_slo_multiple: k; without a token k x TTFT SLO after its due instant a request is aborted. None = never.
    max_in_flight: None = open loop. A number makes due requests wait inside the client; the wait counts in TTFT.
    ignore_eos: ask for exactly max_tokens; fewer are then a truncated reply.
    extra_fields: added to every body; may not replace what the plan decides.
    lead_in_s: between the end of the preparations and the start of the run.
    loop_lag_period_s: how often the lag of the event loop is sampled.
    """

    request_timeout_s: float
    drain_s: float
    give_up_slo_multiple: float | None = None
    max_in_flight: int | None = None
    connect_timeout_s: float = 10.0
    ignore_eos: bool = True
    extra_fields: c.Mapping[str, object] = field(default_factory=dict)
    lead_in_s: float = 0.1
    loop_lag_period_s: float = 0.01
    progress: ShowProgress = ShowProgress.AUTO

    def __post_init__(self) -> None:
        object.__setattr__(self, "progress", ShowProgress(self.progress))
        for name in ("request_timeout_s", "connect_timeout_s", "loop_lag_period_s", "give_up_slo_multiple"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"load setting {name} must be above 0, got {value}")
        for name in ("drain_s", "lead_in_s"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"load setting {name} must not be below 0, got {getattr(self, name)}")
        if self.max_in_flight is not None and self.max_in_flight < 1:
            raise ValueError(f"load setting max_in_flight must be at least 1 (or None), got {self.max_in_flight}")
        if taken := OWN_FIELDS & set(self.extra_fields):
            raise ValueError(f"load setting extra_fields may not replace {', '.join(sorted(taken))}")
