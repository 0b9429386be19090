"""Request-level preemption: the executing prefill is thrown away and starts from nothing later."""

import dataclasses

from engine.core.ports import OnPreempt, Plan, Policy, View


class RequestRestart:
    """The order of another policy; what it preempts loses all it has computed."""

    def __init__(self, inner: Policy) -> None:
        self._inner = inner

    def plan(self, view: View, now_ns: int) -> Plan:
        """The inner plan, preempting by restart."""
        return dataclasses.replace(self._inner.plan(view, now_ns), preempt=OnPreempt.RESTART)
