"""What the executor knows of a request beyond its lengths: tokens, and how the next ones are chosen."""

from dataclasses import dataclass, field

import torch

from engine.core.request import HandOver
from engine.torch_backend.sampling import SamplingSettings, make_generator


@dataclass(frozen=True, slots=True)
class Payload:
    """A prompt and how to go on from it. Raises ValueError for an empty prompt.

    first_token, ticket: of a request that was prefilled elsewhere, and by which its KV is found.
    """

    token_ids: tuple[int, ...]
    sampling: SamplingSettings = field(default_factory=SamplingSettings)
    hand_over: HandOver = HandOver.NONE
    first_token: int | None = None
    ticket: str = ""

    def __post_init__(self) -> None:
        if not self.token_ids:
            raise ValueError("a prompt needs at least one token")
        if (self.hand_over is HandOver.RECEIVES) != (self.first_token is not None):
            raise ValueError("a first token comes with a request that is handed over, and with no other")


@dataclass(slots=True)
class LiveRequest:
    """Prompt and generated tokens of a live request.

    destination: where its KV goes, once that is known. ticket: where it comes from.
    """

    sequence: list[int]
    prompt_tokens: int
    sampling: SamplingSettings
    generator: torch.Generator | None
    sends: bool = False
    destination: str = ""
    ticket: str = ""

    @staticmethod
    def of(payload: Payload, device: torch.device) -> "LiveRequest":
        """A request that has generated nothing here yet."""
        generator = make_generator(payload.sampling, device)
        return LiveRequest(
            sequence=[*payload.token_ids, *(() if payload.first_token is None else (payload.first_token,))],
            prompt_tokens=len(payload.token_ids),
            sampling=payload.sampling,
            generator=generator,
            sends=payload.hand_over is HandOver.SENDS,
            ticket=payload.ticket,
        )

    @property
    def kv_tokens(self) -> int:
        """KV positions the request can come to hold here."""
        return self.prompt_tokens if self.sends else self.total_tokens

    @property
    def total_tokens(self) -> int:
        """Tokens the request can come to have."""
        return self.prompt_tokens + self.sampling.max_tokens

    @property
    def choice(self) -> tuple[SamplingSettings, torch.Generator | None]:
        """How its next token is chosen."""
        return self.sampling, self.generator

    def tokens(self, context_tokens: int, new_tokens: int) -> list[int]:
        """Tokens at these positions. Raises ValueError when the request has not got that far."""
        stop = context_tokens + new_tokens
        if stop > len(self.sequence):
            raise ValueError(f"tokens up to {stop} are asked for, the request has {len(self.sequence)}")
        return self.sequence[context_tokens:stop]

    def take(self, token: int, eos_token_ids: tuple[int, ...]) -> str | None:
        """Append a token; "stop" or "length" when the request ends with it."""
        self.sequence.append(token)
        if not self.sampling.ignore_eos and token in eos_token_ids:
            return "stop"
        return "length" if len(self.sequence) >= self.total_tokens else None
