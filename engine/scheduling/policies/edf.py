"""EDF: earliest deadline first, feasible or not. Work without SLO is due 30 s after its arrival."""

from operator import attrgetter

from engine.core.ports import Plan, View

_DUE = attrgetter("due_at_ns")


class EDF:
    """Earliest deadline first."""

    def plan(self, view: View, now_ns: int) -> Plan:  # noqa: ARG002 - the Policy protocol
        """All live items by deadline; a view breaks the ties."""
        return Plan(sorted(view.items, key=_DUE))
