"""Choosing the next token from logits."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

GREEDY_BELOW = 1e-5
"""A temperature below it is greedy: logits divided by it leave the range of float32, and that fails the whole step."""


@dataclass(frozen=True, slots=True)
class SamplingSettings:
    """How a request's tokens are chosen and when it ends.

    max_tokens: at least 1. temperature: below GREEDY_BELOW = greedy. seed: None = drawn from the machine's entropy.
    ignore_eos: an end-of-text token does not end the request.
    """

    max_tokens: int = 1
    temperature: float = 0.0
    seed: int | None = None
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, got {self.max_tokens}")
        if not 0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature must be 0 or above, got {self.temperature}")


def make_generator(settings: SamplingSettings, device: torch.device) -> torch.Generator | None:
    """A request's own source of randomness; None for a greedy one."""
    if settings.temperature < GREEDY_BELOW:
        return None
    generator = torch.Generator(device)
    if settings.seed is None:
        generator.seed()
    else:
        generator.manual_seed(settings.seed % 2**63)
    return generator


def sample(logits: torch.Tensor, choices: Sequence[tuple[SamplingSettings, torch.Generator | None]]) -> torch.Tensor:
    """One token per row: logits [rows, vocabulary] in float32 -> token ids [rows]."""
    tokens = torch.argmax(logits, dim=-1)
    for row, (settings, generator) in enumerate(choices):
        if generator is not None:
            probabilities = torch.softmax(logits[row] / settings.temperature, dim=-1)
            tokens[row] = torch.multinomial(probabilities, 1, generator=generator)[0]
    return tokens
