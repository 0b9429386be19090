"""What the executor knows of a request beyond its lengths: tokens, and how the next ones are chosen."""

from dataclasses import dataclass, field

import torch

from engine.torch_backend.sampling import SamplingSettings, make_generator


@dataclass(frozen=True, slots=True)
class Payload:
    """A prompt and how to go on from it. Raises ValueError for an empty prompt."""

    token_ids: tuple[int, ...]
    sampling: SamplingSettings = field(default_factory=SamplingSettings)

    def __post_init__(self) -> None:
        if not self.token_ids:
            raise ValueError("a prompt needs at least one token")


@dataclass(slots=True)
class LiveRequest:
    """Prompt and generated tokens of a live request."""

    sequence: list[int]
    prompt_tokens: int
    sampling: SamplingSettings
    generator: torch.Generator | None

    @staticmethod
    def of(payload: Payload, device: torch.device) -> "LiveRequest":
        """A request that has generated nothing yet."""
        generator = make_generator(payload.sampling, device)
        return LiveRequest(list(payload.token_ids), len(payload.token_ids), payload.sampling, generator)

    @property
    def total_tokens(self) -> int:
        """KV positions the request can come to hold."""
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
