"""Seconds over a size, read off measured points and never beyond them."""

import bisect
import collections.abc as c
import math


class RangeError(ValueError):
    """A length lies outside the profile."""


class SampledCurve:
    """Seconds of one operator kind: straight lines between measured points, made never to fall.

    points: (size, seconds), sizes rising. Raises ValueError where there are none, or a time is not above 0.
    """

    def __init__(self, operator: str, points: c.Sequence[tuple[float, float]]) -> None:
        if not points:
            raise ValueError(f"the profile has no times of operator {operator!r}")
        if any(not (seconds > 0 and math.isfinite(seconds)) for _, seconds in points):
            raise ValueError(f"operator {operator!r}: every time must be above 0 s")
        self._operator = operator
        self._sizes = [size for size, _ in points]
        self._seconds: list[float] = []
        for _, seconds in points:
            self._seconds.append(max(seconds, self._seconds[-1]) if self._seconds else seconds)

    def at(self, size: float) -> float:
        """Raises RangeError for a size that was not measured around."""
        if not self._sizes[0] <= size <= self._sizes[-1]:
            raise RangeError(
                f"operator {self._operator!r} was measured from {self._sizes[0]:g} to {self._sizes[-1]:g},"
                f" not at {size:g}"
            )
        right = bisect.bisect_left(self._sizes, size)
        if self._sizes[right] == size:
            return self._seconds[right]
        x0, x1 = self._sizes[right - 1], self._sizes[right]
        y0, y1 = self._seconds[right - 1], self._seconds[right]
        return y0 + (y1 - y0) * (size - x0) / (x1 - x0)
