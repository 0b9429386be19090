"""FCFS: first come, first served. A batch stands where its first member stands."""

from operator import attrgetter

from engine.core.ports import Plan, View

_ARRIVAL = attrgetter("key")


class FCFS:
    """First come, first served."""

    def plan(self, view: View, now_ns: int) -> Plan:  # noqa: ARG002 - the Policy protocol
        """All live items by arrival."""
        return Plan(sorted(view.items, key=_ARRIVAL))
