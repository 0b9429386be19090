"""S-EDF, the paper's priority: feasible work by deadline, then the infeasible by latest deadline."""

from operator import attrgetter

from engine.core.ports import Plan, View, WorkItem

_DUE = attrgetter("due_at_ns")


class SlackEDF:
    """Slack-aware earliest deadline first (paper, S-EDF), faithful: no ageing, reverse EDF among the infeasible.

    Four ranks: feasible work (slack > 0) by deadline; work without SLO that has waited 30 s, by arrival;
    infeasible work, latest deadline first; work without SLO that has not waited so long.
    The published priority is sign(slack) / deadline; ordering by rank and deadline is the same order
    without depending on the clock's origin.
    """

    def plan(self, view: View, now_ns: int) -> Plan:
        """All live items in S-EDF order. Linear, since a view comes in order of deadlines: sorts then find it done."""
        feasible: list[WorkItem] = []
        aged: list[WorkItem] = []
        infeasible: list[WorkItem] = []
        young: list[WorkItem] = []
        for item in view.items:
            if item.has_slo:
                if item.due_at_ns - item.remaining_ns > now_ns:
                    feasible.append(item)
                else:
                    infeasible.append(item)
            elif now_ns >= item.due_at_ns:
                aged.append(item)
            else:
                young.append(item)
        for rank in (feasible, aged, young):
            rank.sort(key=_DUE)
        infeasible.sort(key=_DUE, reverse=True)
        return Plan(feasible + aged + infeasible + young)
