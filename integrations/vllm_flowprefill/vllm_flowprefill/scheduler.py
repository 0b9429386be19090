"""vLLM's scheduler with prefills in S-EDF order: granularity `chunk`, and what the nesting granularities stand on."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine import EngineCoreOutputs
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus

from engine.scheduling.predictors.guarded import GuardedPredictor
from engine.scheduling.predictors.polynomial import PolynomialPredictor
from vllm_flowprefill.deadlines import Deadlines, Executing
from vllm_flowprefill.learned_predictor import LearnedPredictor
from vllm_flowprefill.nesting_log import NestingLog, Preemption
from vllm_flowprefill.unsupported import settings_or_exit

Prefills = tuple[tuple[Request, int, int], ...]
READY = (RequestStatus.WAITING, RequestStatus.PREEMPTED)
"""Of a waiting request that could start at once: it waits for no grammar and the like."""


class DeadlineScheduler(Scheduler):
    """Decode steps first, as ever; then prefills, begun or not, by S-EDF.

    A begun prefill that is less urgent than a waiting one is held back for a step: it keeps its KV and its place among
    the running, so that it is the first to be preempted for memory.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.settings = settings_or_exit(self.vllm_config)
        given = self.settings.predictor_s
        predictor = LearnedPredictor() if given is None else PolynomialPredictor(given)
        self.deadlines = Deadlines(GuardedPredictor(predictor), self.settings.default_ttft_slo_s, self.settings.order)
        self.log = NestingLog(self.settings.nesting_log)
        self.running: list[Request]
        self.executing: list[Executing] = []
        """Steps in execution, the outermost first: more than one where steps are nested."""
        self.before_step: Callable[[Prefills], None] = _nothing
        """Called with a step's prefills when it has been scheduled."""

    def add_request(self, request: Request) -> None:
        """As ever; the arrival is stamped on our clock now."""
        super().add_request(request)
        self.deadlines.request(request)

    def schedule(self, throttle_prefills: bool = False) -> SchedulerOutput:
        """A step of the most urgent work."""
        if self.settings.granularity == "none":
            return super().schedule(throttle_prefills)
        prefills = [request for request in self.running if self.prefilling(request)]
        if not prefills and not self.waiting:
            output = super().schedule(throttle_prefills)
            self._begin(output, ())
            return output
        held = self._arrange(prefills)
        before = {request: request.num_computed_tokens for request in self.running}
        waited = set(self.waiting) if held else set()
        output = super().schedule(throttle_prefills)
        if held and output.total_num_scheduled_tokens == 0:
            # What is more urgent does not fit into the KV cache: better the held prefills than nothing.
            empty = output
            for request in held:
                request.next_decode_eligible_step = 0
            output = super().schedule(throttle_prefills)
            output.finished_req_ids |= empty.finished_req_ids
            output.preempted_req_ids = (output.preempted_req_ids or set()) | (empty.preempted_req_ids or set())
            held = []
        ahead = tuple(request for request in waited if held and request.request_id in output.num_scheduled_tokens)
        self._begin(output, self._prefills_of(output, before), ahead)
        return output

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> dict[int, EngineCoreOutputs]:
        """As ever; the step is over."""
        self._end(scheduler_output)
        outputs: dict[int, EngineCoreOutputs] = super().update_from_output(scheduler_output, model_runner_output)
        return outputs

    def forget_step(self) -> None:
        """The innermost step ended in an error: no output of it will come."""
        if self.executing:
            self.executing.pop()

    def prefilling(self, request: Request) -> bool:
        """Whether a request has no token yet, or lost its KV and begins again."""
        return bool(request.num_computed_tokens < request.num_prompt_tokens)

    def _arrange(self, prefills: list[Request]) -> list[Request]:
        """Order both queues; returns the running prefills that are held back in the coming step.

        prefills: those that run.
        """
        if not prefills and len(self.waiting) == 1:
            return []
        running = set(prefills)
        order = self.deadlines.order([*self.waiting, *prefills])
        first_waiting = next((r for r in order if r not in running and r.status in READY), None)
        decodes = [request for request in self.running if request not in running]
        self.running = decodes + [request for request in order if request in running]
        self.waiting.clear()
        self.waiting.extend(request for request in order if request not in running)
        if first_waiting is None or not self._has_room(first_waiting):
            return []
        held = [r for r in order[order.index(first_waiting) :] if r in running]
        for request in held:
            # vLLM's own way to leave a running request out of one step; the step's number is one more than now.
            request.next_decode_eligible_step = self.current_step + 2
        return held

    def _has_room(self, request: Request) -> bool:
        if len(self.running) >= self.max_num_active_reqs:
            return False
        free = self.kv_cache_manager.block_pool.get_num_free_blocks()
        return bool(free * self.block_size > request.num_tokens)

    def _prefills_of(self, output: SchedulerOutput, before: dict[Request, int]) -> Prefills:
        """(request, new tokens, tokens before them) of a step. before: computed tokens of those that ran already."""
        prefills = []
        for request_id, new in output.num_scheduled_tokens.items():
            request = self.requests[request_id]
            context = before.get(request, request.num_computed_tokens - new)
            if context < request.num_prompt_tokens:
                prefills.append((request, new, context))
        return tuple(prefills)

    def _begin(self, output: SchedulerOutput, prefills: Prefills, ahead: tuple[Request, ...] = ()) -> None:
        if output.total_num_scheduled_tokens > 0:
            self.executing.append(Executing(prefills, time.monotonic_ns(), ahead=ahead))
            self.before_step(prefills)

    def _end(self, output: SchedulerOutput) -> None:
        if output.total_num_scheduled_tokens == 0 or not self.executing:
            return
        step = self.executing.pop()
        now = time.monotonic_ns()
        if len(step.prefills) == len(output.num_scheduled_tokens):
            self.deadlines.observe(step.work, now - step.started_at_ns - step.nested_ns)
        if self.executing:
            outer = self.executing[-1]
            self.executing[-1] = replace(outer, nested_ns=outer.nested_ns + now - step.started_at_ns)
            return
        for request in step.ahead:
            asked = self.deadlines.request(request).arrived_at_ns
            self.log.add(
                Preemption(request.request_id, self.settings.granularity, "step", 1, asked, step.started_at_ns, now)
            )


def _nothing(prefills: Prefills) -> None:
    pass
