"""SRPT: shortest remaining predicted time first. Blind to deadlines."""

from operator import attrgetter

from engine.core.ports import Plan, View

_SHORTEST = attrgetter("remaining_ns", "tie")


class SRPT:
    """Shortest remaining prefill time first."""

    def plan(self, view: View, now_ns: int) -> Plan:  # noqa: ARG002 - the Policy protocol
        """All live items by predicted remaining time."""
        return Plan(sorted(view.items, key=_SHORTEST))
