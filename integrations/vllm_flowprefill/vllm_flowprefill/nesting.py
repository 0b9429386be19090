"""Preemption as nested execution: a hook in the forward pass runs the stock step for one more urgent request.

The stack of Python is the stack of preempted prefills. Nothing of vLLM's schedule, execute and sample is copied; what
is relied on is listed in private_names.py.
"""

import logging
import time
from collections.abc import Callable
from typing import Any

from vllm.forward_context import override_forward_context
from vllm.v1.engine import EngineCoreRequestType
from vllm.v1.request import Request, RequestStatus

from vllm_flowprefill.boundaries import Hooks
from vllm_flowprefill.nesting_log import Preemption
from vllm_flowprefill.private_names import require
from vllm_flowprefill.runners import another_runner, empty
from vllm_flowprefill.scheduler import READY, DeadlineScheduler
from vllm_flowprefill.settings import SettingError, Settings

logger = logging.getLogger("vllm.flowprefill")


def attach(core: Any, settings: Settings) -> "Nesting":
    """Put hooks into the model of an engine core whose loop has not begun. Ends the process where that cannot be."""
    try:
        if not isinstance(core.scheduler, DeadlineScheduler):
            raise SettingError(
                f"vllm_flowprefill: granularity {settings.granularity} needs "
                "--scheduler-cls vllm_flowprefill.scheduler.DeadlineScheduler"
            )
        if not hasattr(core.model_executor, "driver_worker"):
            raise SettingError(
                f"vllm_flowprefill: granularity {settings.granularity} needs "
                "--distributed-executor-backend vllm_flowprefill.executor.InlineExecutor"
            )
        require(core)
        nesting = Nesting(core, settings)
        hooks = Hooks(nesting.runners[0].model, settings.granularity, nesting.at_boundary)
    except SettingError as error:
        raise SystemExit(str(error)) from None
    nesting.listen(hooks)
    logger.info("flowprefill: %s, %d boundaries, depth up to %d", settings.granularity, len(hooks), settings.max_depth)
    return nesting


class Nesting:
    """Decides at each boundary whether a waiting request runs first, and runs it there.

    runners: the stock one, then one for each depth of nesting.
    """

    def __init__(self, core: Any, settings: Settings) -> None:
        self._core = core
        self._scheduler: DeadlineScheduler = core.scheduler
        self._granularity = settings.granularity
        self._max_depth = settings.max_depth
        self._worker = core.model_executor.driver_worker.worker
        first = self._worker.model_runner
        self.runners = [first, *(another_runner(first, first.kv_cache_config) for _ in range(settings.max_depth))]
        self._depth = 0
        self._waiting: list[Request] = []
        """Outside of the innermost nested step; at depth 0 the scheduler's own queue has them."""
        self._outside = 0
        """Requests that run in enclosing steps."""
        self._nested: tuple[Request, ...] = ()
        self._after: list[Request] = []
        """Have their first token and run on in plain steps, once the outermost one has ended."""
        self._stuck: set[Request] = set()
        """Did not get KV in this outermost step."""
        self._deferred: list[tuple[Any, Any]] = []
        self._stock_step: Callable[[], Any] = core.step_fn
        self._stock_aborts: Callable[[], None] = core._process_aborts_queue
        core.step_fn = self._step
        core._process_aborts_queue = self._process_aborts

    def listen(self, hooks: Hooks) -> None:
        """Have the hooks armed in every outermost step that computes a prefill, and as long as it lasts."""
        self._scheduler.before_step = lambda prefills: hooks.arm(bool(prefills) or self._depth > 0)

    def at_boundary(self, label: str) -> None:
        """Called by the hooks: nest whatever is more urgent than the executing step, one request after the other."""
        if not self._core.input_queue.queue or not self._scheduler.executing:
            return
        if not self._take_arrivals() or not self._scheduler.executing[-1].prefills:
            return
        asked = 0
        while self._depth < self._max_depth:
            request = self._more_urgent()
            if request is None:
                return
            asked = self._nest(request, label, asked)
            self._take_arrivals()

    def _take_arrivals(self) -> bool:
        """Move new requests from the engine's input to the scheduler; whether there were any.

        An abort waits for the end of the outermost step, lest blocks be freed that are still written to. Any other
        message stays in the queue, and what is behind it.
        """
        found = False
        queue = self._core.input_queue
        while queue.queue:
            kind = queue.queue[0][0]
            if kind not in (EngineCoreRequestType.ADD, EngineCoreRequestType.ABORT):
                break
            message = queue.get_nowait()
            if kind == EngineCoreRequestType.ABORT:
                self._deferred.append(message)
                continue
            self._core._handle_client_request(*message)
            found = True
        if self._depth > 0 and found:
            inside = [request for request in self._scheduler.waiting if request in self._nested]
            self._waiting.extend(request for request in self._scheduler.waiting if request not in self._nested)
            self._scheduler.waiting.clear()
            self._scheduler.waiting.extend(inside)
        return found

    def _more_urgent(self) -> Request | None:
        scheduler = self._scheduler
        if self._outside + len(scheduler.running) >= scheduler.max_num_active_reqs:
            return None
        waiting = self._waiting if self._depth > 0 else scheduler.waiting
        candidates = [request for request in waiting if request.status in READY and request not in self._stuck]
        if not candidates:
            return None
        return scheduler.deadlines.order(candidates, scheduler.executing[-1])[0]

    def _nest(self, request: Request, label: str, asked: int) -> int:
        """Run one request to its first token; returns the instant of its end."""
        scheduler = self._scheduler
        started = time.monotonic_ns()
        asked = max(asked, scheduler.deadlines.request(request).arrived_at_ns)
        with _Scope(self, request):
            failed = not self._run(request)
        ended = time.monotonic_ns()
        scheduler.log.depth(self._depth)
        scheduler.log.add(
            Preemption(
                request.request_id, self._granularity, label, self._depth + 1, asked, started, ended, failed=failed
            )
        )
        return ended

    def _run(self, request: Request) -> bool:
        """Stock steps until the request has a token, ends, or finds no KV; False after an error, which ends only it."""
        core = self._core
        depth = len(self._scheduler.executing)
        tokens = request.num_output_tokens
        try:
            with override_forward_context(None):
                while request.num_output_tokens == tokens and not request.is_finished():
                    if not core._process_engine_step():
                        self._stuck.add(request)
                        return True
        except Exception:
            logger.exception("flowprefill: the nested step of request %s failed", request.request_id)
            while len(self._scheduler.executing) > depth:
                self._scheduler.forget_step()
            self._scheduler.finish_requests(request.request_id, RequestStatus.FINISHED_ERROR)
            core._send_error_outputs_to_client([request.request_id], request.client_index)
            return False
        return True

    def _step(self) -> Any:
        """The stock step; after the outermost one, the messages that had to wait for its end."""
        result = self._stock_step()
        if self._depth == 0:
            self._stuck.clear()
            deferred, self._deferred = self._deferred, []
            for message in deferred:
                self._core._handle_client_request(*message)
        return result

    def _process_aborts(self) -> None:
        if self._depth == 0:
            self._stock_aborts()


class _Scope:
    """While it is entered, the scheduler sees one request and the worker has the runner of the next depth."""

    def __init__(self, nesting: Nesting, request: Request) -> None:
        self._nesting = nesting
        self._request = request

    def __enter__(self) -> None:
        nesting, request = self._nesting, self._request
        scheduler = nesting._scheduler
        self._running, scheduler.running = scheduler.running, []
        if nesting._depth == 0:
            nesting._waiting = list(scheduler.waiting)
        nesting._waiting.remove(request)
        self._inner_waiting = list(scheduler.waiting) if nesting._depth > 0 else []
        scheduler.waiting.clear()
        scheduler.waiting.append(request)
        # These are handed to the next step's runner, which must be the one that knows the requests.
        self._finished, scheduler.finished_req_ids = scheduler.finished_req_ids, set()
        self._preempted, scheduler.reset_preempted_req_ids = scheduler.reset_preempted_req_ids, set()
        self._previous, scheduler.prev_step_scheduled_req_ids = scheduler.prev_step_scheduled_req_ids, set()
        nesting._outside += len(self._running)
        nesting._nested = (*nesting._nested, request)
        nesting._depth += 1
        runner = nesting.runners[nesting._depth]
        state = nesting.runners[0].requests.pop(request.request_id, None)
        if state is not None:  # it lost its KV earlier
            runner.requests[request.request_id] = state
        nesting._worker.model_runner = runner
        scheduler.log.depth(nesting._depth)

    def __exit__(self, *error: object) -> None:
        nesting, request = self._nesting, self._request
        scheduler = nesting._scheduler
        states = empty(nesting.runners[nesting._depth])
        nesting._depth -= 1
        nesting._worker.model_runner = nesting.runners[nesting._depth]
        nesting._nested = nesting._nested[:-1]
        nesting._outside -= len(self._running)
        if not request.is_finished():
            # To the outermost runner, whichever depth this is: the next step that sees the request is a plain one.
            if request.request_id in states:
                nesting.runners[0].requests[request.request_id] = states[request.request_id]
            if request.status != RequestStatus.RUNNING:
                nesting._waiting.append(request)
        nested_running = list(scheduler.running)
        scheduler.running = self._running
        nesting._after.extend(nested_running)
        scheduler.waiting.clear()
        if nesting._depth == 0:
            scheduler.running.extend(nesting._after)
            nesting._after.clear()
            scheduler.waiting.extend(nesting._waiting)
            nesting._waiting = []
        else:
            scheduler.waiting.extend(self._inner_waiting)
        scheduler.finished_req_ids |= self._finished
        scheduler.reset_preempted_req_ids |= self._preempted
        scheduler.prev_step_scheduled_req_ids = self._previous
