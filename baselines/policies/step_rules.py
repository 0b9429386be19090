"""The step rule of vLLM (V1 engine) and of SGLang, as far as an instance that only prefills can tell them apart.

A step holds a budget of tokens: `max_num_batched_tokens` in vLLM, `chunked_prefill_size` in SGLang. What has begun goes
on first; then new prompts are admitted in the order of the queue (arrival, or a priority with ties by arrival), each
with all of its tokens or as many as are left; the one that is cut is the last, so that at most one prompt is under way
between steps. The first prompt for which there is no memory ends the admission. A step is never stopped.

The two differ in what is not here: vLLM puts decodes into the same step, SGLang runs steps of prefills first; their
prefix caches; their default budgets. And from `chunked_prefill` they differ where the order is not that of arrival:
a long prompt, once begun, is not overtaken between its chunks. The rule is `BegunFirst` order with
`ChunkBatching(budget, overtake=False)`.
"""

import dataclasses
from operator import attrgetter

from engine.core.ports import ItemState, Plan, Policy, View, WorkItem

_ARRIVAL = attrgetter("tie")


class BegunFirst:
    """Whatever has begun, by arrival; then the rest in the order of another policy."""

    def __init__(self, inner: Policy) -> None:
        self._inner = inner

    def plan(self, view: View, now_ns: int) -> Plan:
        """The inner plan, with what executes, is preempted or is partly computed before what is new."""
        plan = self._inner.plan(view, now_ns)
        begun = sorted((item for item in plan.order if _has_begun(item)), key=_ARRIVAL)
        return dataclasses.replace(plan, order=[*begun, *(item for item in plan.order if not _has_begun(item))])


def _has_begun(item: WorkItem) -> bool:
    return item.state is not ItemState.WAITING or item.context_tokens > 0
