"""Any order, without preemption: a task that runs, runs to its end."""

import dataclasses

from engine.core.ports import OnPreempt, Plan, Policy, View


class NonPreemptive:
    """The order of another policy; the executing task is never stopped for it."""

    def __init__(self, inner: Policy) -> None:
        self._inner = inner

    def plan(self, view: View, now_ns: int) -> Plan:
        """The inner plan, without preemption."""
        return dataclasses.replace(self._inner.plan(view, now_ns), preempt=OnPreempt.NEVER)
