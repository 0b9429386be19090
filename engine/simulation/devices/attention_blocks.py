"""How attention fills a device: in blocks of query rows of one head, as many at a time as it has compute units."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from engine.model.granularity import Span, pairs_of


def spread_pairs(spans: Sequence[Span], heads: int, block_rows: int, units: int) -> float:
    """Query-key pairs, over all heads, that `units` compute in the time these spans take; at least what they hold.

    A block is `block_rows` query rows of one head and computes all its rows; blocks are taken in rounds of `units`, the
    longest first, and a round lasts as long as its longest block. So few query rows after a long context leave units
    idle. A single row (a decode step) is split along its context instead, and leaves none idle.
    """
    single = [span for span in spans if span[2] - span[1] == 1]
    blocks = _blocks([span for span in spans if span[2] - span[1] > 1], block_rows)
    total = float(heads * pairs_of(single))
    if len(blocks):
        rounds = -(-len(blocks) * heads // units)
        # Every block stands there once for each head.
        longest = blocks[np.arange(rounds) * units // heads]
        total += units * float(longest.sum())
    return total


def _blocks(spans: Sequence[Span], block_rows: int) -> NDArray[np.float64]:
    """Pairs of each block, the longest first."""
    found = []
    for segment, first, stop in spans:
        before = segment.context_tokens + first + block_rows * np.arange(-(-(stop - first) // block_rows))
        found.append(block_rows * (before + (block_rows + 1) / 2))
    if not found:
        return np.empty(0)
    if len(found) == 1:
        return np.asarray(found[0][::-1])
    return np.sort(np.concatenate(found))[::-1]
