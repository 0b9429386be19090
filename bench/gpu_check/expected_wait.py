"""The wait of a pause asked at a random instant, from operator times, boundaries and the launch bound alone."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExpectedWait:
    """Of a prefill that the device runs without a gap. In seconds.

    formula_s: sum(t^2) / (2 sum t) over the times t between boundaries. queued_s: what the work launched ahead adds to
    the mean. longest_s: the longest t.
    """

    formula_s: float
    queued_s: float
    longest_s: float

    @property
    def mean_s(self) -> float:
        """The mean wait."""
        return self.formula_s + self.queued_s


def expected_wait(
    seconds: Sequence[float], boundary: Sequence[bool], bound_s: float, launch_s: float = 0.0
) -> ExpectedWait:
    """seconds: of each operator; boundary: whether the task may stop before it. launch_s: the host's time for a launch.

    An operator is launched once the host is free and what is in flight ends within the bound (`LaunchWindow`). A pause
    is heard at the next launch of an operator with a boundary, and the task has stopped when all before it has ended:
    so a pause in the stretch [since, launch) waits until then, on the average over the stretch.
    """
    ended = since = area = squares = gap = longest = 0.0
    free = 0.0  # when the host is
    for took, may_stop in zip(seconds, boundary, strict=True):
        launch = max(free, ended - bound_s)
        if may_stop:
            area += _area(since, launch, max(ended, launch))
            since = launch
            squares, longest, gap = squares + gap * gap, max(longest, gap), 0.0
        ended = max(ended, launch) + took
        gap += took
        free = launch + launch_s
    area += _area(since, ended, ended)
    squares, longest = squares + gap * gap, max(longest, gap)
    formula = squares / (2 * sum(seconds))
    return ExpectedWait(formula, area / ended - formula, longest)


def _area(start: float, stop: float, ended: float) -> float:
    """The integral of (ended - x) over x from start to stop."""
    return (stop - start) * (ended - (start + stop) / 2)
