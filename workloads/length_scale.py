"""Trace tokens to the tokens a scaled-down model is sent."""

import math


def effective_tokens(tokens: int, length_scale: float) -> int:
    """What a length scale makes of a trace's token count: rounded up, at least 1.

    A product within rounding error of a whole number is that number (0.07 x 100 is 7, not 8).
    """
    product = tokens * length_scale
    nearest = round(product)
    return max(1, nearest if math.isclose(product, nearest, rel_tol=1e-12) else math.ceil(product))
