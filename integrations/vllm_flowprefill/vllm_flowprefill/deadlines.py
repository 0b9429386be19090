"""vLLM's requests as the engine's: arrival, TTFT SLO, remaining work, and S-EDF order by engine.scheduling."""

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from engine.core.batch import Work
from engine.core.clock import NS_PER_S
from engine.core.ports import ItemState, Policy, Predictor, WorkItem
from engine.core.request import Request
from engine.core.slo import SLO
from engine.scheduling.policies.edf import EDF
from engine.scheduling.policies.s_edf import SlackEDF
from engine.scheduling.slack import deadline_member, remaining_ns
from vllm_flowprefill.settings import Order, is_duration

logger = logging.getLogger("vllm.flowprefill")


@dataclass(frozen=True, slots=True)
class Candidates:
    """A view for the policy (engine.core.ports.View)."""

    items: tuple[WorkItem, ...]
    executing: WorkItem | None


@dataclass(frozen=True, slots=True)
class Executing:
    """A step in execution. prefills: (vLLM request, new tokens, tokens before them); empty = decodes only.

    nested_ns: how much of the time since `started_at_ns` went to steps nested in this one.
    ahead: vLLM requests in it for which begun, less urgent prefills were held back.
    """

    prefills: tuple[tuple[Any, int, int], ...]
    started_at_ns: int
    nested_ns: int = 0
    ahead: tuple[Any, ...] = ()

    @property
    def work(self) -> Work:
        """What a predictor prices."""
        return Work(tuple((new, context) for _, new, context in self.prefills))


class Deadlines:
    """Knows every live request's deadline and orders work by S-EDF. Forgets a request when vLLM does."""

    def __init__(
        self,
        predictor: Predictor,
        default_ttft_slo_s: float | None,
        order: Order = "s_edf",
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._predictor = predictor
        self._default_ttft_slo_s = default_ttft_slo_s
        self._now_ns = now_ns
        self._policy: Policy = SlackEDF() if order == "s_edf" else EDF()
        self._known: WeakKeyDictionary[Any, Request] = WeakKeyDictionary()
        self._seq = 0
        self.invalid_slos = 0

    def request(self, theirs: Any) -> Request:
        """The engine's view of a vLLM request; made when it is first asked for."""
        ours = self._known.get(theirs)
        if ours is None:
            # vLLM stamps arrivals on the wall clock of its front end; everything here is on the monotonic one.
            waited_ns = max(0, time.time_ns() - round(theirs.arrival_time * NS_PER_S))
            ours = Request(
                request_id=theirs.request_id,
                seq=self._seq,
                arrived_at_ns=self._now_ns() - waited_ns,
                prompt_tokens=max(1, theirs.num_prompt_tokens),
                max_tokens=max(1, theirs.max_tokens),
                slo=self._slo(theirs),
            )
            self._seq += 1
            self._known[theirs] = ours
        return ours

    def order(self, waiting: Sequence[Any], executing: Executing | None = None) -> list[Any]:
        """Requests most urgent first; None stands for the executing step, where one is given."""
        now = self._now_ns()
        items: list[WorkItem] = [self._waiting_item(theirs) for theirs in waiting]
        back: dict[int, Any | None] = {item.key: theirs for item, theirs in zip(items, waiting, strict=True)}
        running = None if executing is None else self._executing_item(executing, now)
        if running is not None:
            items.append(running)
            back[running.key] = None
        items.sort(key=lambda item: (item.due_at_ns, item.tie))
        return [back[item.key] for item in self._policy.plan(Candidates(tuple(items), running), now).order]

    def observe(self, work: Work, executed_ns: int) -> None:
        """A finished step without decodes in it."""
        self._predictor.observe(work, executed_ns)

    def _waiting_item(self, theirs: Any) -> WorkItem:
        ours = self.request(theirs)
        context = theirs.num_computed_tokens
        new = max(1, theirs.num_tokens - context)
        left = self._predictor.estimate_ns(Work(((new, context),)))
        return _item(ours, (ours,), ItemState.WAITING, left, new, context)

    def _executing_item(self, step: Executing, now: int) -> WorkItem:
        executed = now - step.started_at_ns - step.nested_ns
        # What is left of a member is the rest of its prompt, of which this step may be a chunk.
        whole = Work(tuple((max(1, theirs.num_tokens - context), context) for theirs, _, context in step.prefills))
        left = remaining_ns(self._predictor.estimate_ns(whole), executed)
        members = tuple(self.request(theirs) for theirs, _, _ in step.prefills)
        head = deadline_member(members, "earliest_live", now + left)
        new = sum(new for new, _ in step.work.lengths)
        context = sum(context for _, context in step.work.lengths)
        return _item(head, members, ItemState.EXECUTING, left, new, context)

    def _slo(self, theirs: Any) -> SLO:
        extra = getattr(theirs.sampling_params, "extra_args", None) or {}
        stated = extra.get("ttft_slo", self._default_ttft_slo_s)
        if stated is None:
            return SLO()
        try:
            seconds = float(stated)
        except (TypeError, ValueError):
            seconds = math.nan
        if not is_duration(seconds):
            self.invalid_slos += 1
            logger.warning("request %s: ttft_slo %r is no duration in seconds, ignored", theirs.request_id, stated)
            return SLO()
        return SLO(ttft_ns=max(1, round(seconds * NS_PER_S)))


def _item(
    head: Request, members: tuple[Request, ...], state: ItemState, left_ns: int, new: int, context: int
) -> WorkItem:
    return WorkItem(
        key=head.seq,
        state=state,
        members=members,
        arrived_at_ns=min(member.arrived_at_ns for member in members),
        due_at_ns=head.due_at_ns,
        has_slo=head.has_slo,
        remaining_ns=left_ns,
        new_tokens=new,
        context_tokens=context,
    )
