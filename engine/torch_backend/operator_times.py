"""How long operators are in flight on a device: what the launch window goes by."""

from engine.core.clock import NS_PER_S
from engine.torch_backend.program import Operator

SHORTEST_NS = 10_000
"""Of an operator that never ran: a few kernels, however little they compute."""

MOST_KEPT = 4096


class OperatorTimes:
    """Predicted from the device's speed; once an operator of as many operations has run, as long as that one took.

    All layers of a task have the same operators: from its second layer on they are known. Of the last two times the
    shorter counts: the longer may hold a gap in which the device waited for the host.
    """

    def __init__(self, device_flops_per_s: float) -> None:
        self._device_flops_per_s = device_flops_per_s
        self._measured: dict[int, tuple[int, int]] = {}

    def predicted_ns(self, operator: Operator) -> int:
        """How long an operator is taken to be in flight."""
        last_two = self._measured.get(operator.flops)
        if last_two is not None:
            return min(last_two)
        return max(SHORTEST_NS, int(operator.flops / self._device_flops_per_s * NS_PER_S))

    def learn(self, flops: int, took_ns: int) -> None:
        """An operator of so many operations took so long. What was learnt first is forgotten first."""
        last_ns, _ = self._measured.get(flops, (took_ns, took_ns))
        self._measured[flops] = (took_ns, last_ns)
        if len(self._measured) > MOST_KEPT:
            del self._measured[next(iter(self._measured))]
