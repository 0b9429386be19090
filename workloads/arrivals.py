"""Generated arrival instants: gaps of a Poisson or gamma process, stretched to an exact span."""

import math
import random


def generated_arrivals_s(count: int, span_s: float, cv: float, rng: random.Random) -> list[float]:
    """`count` instants from 0 to span_s, in order; gaps are gamma with coefficient of variation `cv` (1 = Poisson).

    The gaps are scaled so that they add up to the span: seeds differ in burstiness, never in mean load.
    """
    if count < 1:
        return []
    gaps = [_gap(cv, rng) for _ in range(count - 1)]
    total = sum(gaps)
    instants, passed = [0.0], 0.0
    for gap in gaps:
        passed += gap
        instants.append(span_s * passed / total if total > 0 else 0.0)
    return instants


def _gap(cv: float, rng: random.Random) -> float:
    """A gap up to scale. Poisson gaps use random() alone, the stream that no Python version changes."""
    return -math.log(1.0 - rng.random()) if cv == 1 else rng.gammavariate(1 / (cv * cv), 1.0)
