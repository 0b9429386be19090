"""What a simulated policy's predictor is fitted to: prefills timed on the device model, as a user would time a GPU."""

import math

from engine.core.batch import Sequence, Task, TaskKind
from engine.scheduling.predictors.polynomial import PrefillSample
from engine.serving.timings import Timings
from engine.simulation.device import DeviceModel

SHORTEST_TOKENS, LONGEST_TOKENS, LENGTHS = 16, 20480, 45
"""The published fit: one sample at each of 45 lengths from 16 to 20480 tokens (paper, TTFT predictor)."""
CHUNK_TOKENS = (256, 1024, 4096)
CONTEXT_TOKENS = (1024, 4096, 8192)
"""Samples after cached tokens, which the release lacks: it prices later chunks as if at position 0."""


def published_lengths(most_tokens: int, length_scale: float = 1.0) -> tuple[int, ...]:
    """The 45 lengths, spaced geometrically (only their number and ends are published), in tokens as sent.

    most_tokens: longer ones are left out, this one is the last.
    """
    step = (LONGEST_TOKENS / SHORTEST_TOKENS) ** (1 / (LENGTHS - 1))
    all_lengths = {max(1, round(SHORTEST_TOKENS * step**i * length_scale)) for i in range(LENGTHS)}
    kept = {tokens for tokens in all_lengths if tokens < most_tokens}
    return tuple(sorted(kept | {min(most_tokens, max(all_lengths))}))


def sampled_timings(device: DeviceModel, layers: int, most_tokens: int, length_scale: float = 1.0) -> Timings:
    """Prefills at the published lengths, and chunks after cached tokens, none reaching beyond most_tokens (as sent)."""
    alone = [(tokens, 0) for tokens in published_lengths(most_tokens, length_scale)]
    after = [
        (max(1, math.ceil(new * length_scale)), max(1, math.ceil(context * length_scale)))
        for new in CHUNK_TOKENS
        for context in CONTEXT_TOKENS
    ]
    lengths = alone + [(new, context) for new, context in after if new + context <= most_tokens]
    return Timings(layers, tuple(PrefillSample(new, x, prefill_seconds(device, new, x)) for new, x in lengths))


def prefill_seconds(device: DeviceModel, new_tokens: int, context_tokens: int = 0) -> float:
    """Undisturbed seconds of one prompt's prefill, or of its end after cached tokens."""
    return float(device.program(prefill_task(new_tokens, context_tokens)).seconds.sum())


def prefill_task(new_tokens: int, context_tokens: int = 0) -> Task:
    """A task of one sequence."""
    return Task(0, TaskKind.PREFILL, (Sequence("r", context_tokens, new_tokens, last=True),))
