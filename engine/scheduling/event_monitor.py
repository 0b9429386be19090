"""What each event means for the live work: the paper's event monitor, before anything is decided."""

from engine.core.batch import HAND_OVERS, TaskKind, Work
from engine.core.commands import Command, Discard, Fail, Pause, Reject, ReleaseKV
from engine.core.events import (
    Arrival,
    Cancelled,
    Completion,
    Event,
    Failed,
    KVReleased,
    Output,
    Preempted,
    SendAsked,
    Woken,
)
from engine.core.ports import ItemState, OnPreempt
from engine.core.request import HandOver, Request
from engine.scheduling.counters import Counters
from engine.scheduling.dispatch import Dispatch
from engine.scheduling.execution_pool import AskedPause, ExecutionPool, LiveTask
from engine.scheduling.predictors.guarded import GuardedPredictor
from engine.scheduling.request_book import KV_ON_ITS_WAY_BACK, LiveRequest, RequestBook, Stand


class EventMonitor:
    """Takes events in: book, pool and ledgers follow, and what is due at once is commanded.

    commands: given since the list was last replaced.
    undecided_at_ns: arrivals that no decision has seen yet.
    round_due: an arrival or a completion asks for a decision. other_round_due: something else does.
    """

    def __init__(self, book: RequestBook, pool: ExecutionPool, dispatch: Dispatch, predictor: GuardedPredictor) -> None:
        self._book = book
        self._pool = pool
        self._dispatch = dispatch
        self._predictor = predictor
        self.counters = Counters()
        self.commands: list[Command] = []
        self.undecided_at_ns: list[int] = []
        self.round_due = False
        self.other_round_due = False

    def take(self, event: Event, now_ns: int) -> None:
        """Follow one event. Raises BookError for a task that is not live."""
        match event:
            case Completion():
                self._complete(event, now_ns)
            case Preempted():
                self._preempted(event, now_ns)
            case Failed():
                self._failed(event)
            case Cancelled():
                self._cancel(event, now_ns)
            case KVReleased():
                self._kv_released(event)
            case SendAsked():
                self._send(event, now_ns)
            case Woken():
                self.other_round_due |= self._dispatch.woken(event.at_ns)
            case Arrival():
                self._arrive(event, now_ns)

    def reject(self, request: Request, reason: str, never: bool = False) -> None:
        """The request gets no service; what it holds is another matter (`over`)."""
        self.counters.rejected += 1
        self.commands.append(Reject(request.request_id, reason, never))

    def over(self, live: LiveRequest) -> None:
        """Nothing more is computed for the request, and no task writes its KV: the blocks are asked back."""
        self._book.move(live, Stand.RELEASING)
        if live.missing_blocks == 0:
            self.commands.append(ReleaseKV(live.request.request_id))
        elif live.missing_blocks == live.blocks:
            self._book.forget(live)

    # One method for each event.

    def _arrive(self, event: Arrival, now_ns: int) -> None:
        request = event.request
        if conflict := self._book.conflict(request):
            self.reject(request, conflict)
            return
        if reason := self._dispatch.why_never(request, 0, now_ns):
            self.reject(request, reason, never=True)
            return
        self._book.arrive(request, self._dispatch.kv.blocks_for(request))
        if request.hand_over is HandOver.RECEIVES:
            return
        self.undecided_at_ns.append(event.at_ns)
        self.round_due = True

    def _complete(self, event: Completion, now_ns: int) -> None:
        live = self._pool.find(event.task_id)
        if live.task.kind in HAND_OVERS:
            self._handed_over(live, event.at_ns)
            return
        self.counters.executed_ns += event.executed_ns - live.executed_ns
        self._predictor.observe(Work.of(live.task), event.executed_ns)
        prefill = live.task.kind is TaskKind.PREFILL
        if prefill:
            self.counters.prefill_tokens += live.task.new_tokens
        else:
            self.counters.decode_tokens += live.task.new_tokens
            self._dispatch.steps.last_step_ns = event.executed_ns
        self._end(live, event.at_ns)
        self.round_due = True
        outputs = {output.request_id: output for output in event.outputs}
        for member, sequence in zip(live.everyone, live.task.sequences, strict=True):
            if member.stand is Stand.LEAVING:
                self.over(member)
            elif prefill and not sequence.last:
                self._wait_again(member, sequence.context_tokens + sequence.new_tokens, now_ns)
            else:
                self._token(member, outputs.get(sequence.request_id), event.at_ns)

    def _handed_over(self, live: LiveTask, at_ns: int) -> None:
        """The KV has come or has left. Behind a send the blocks are free."""
        self._end(live, at_ns)
        member = live.everyone[0]
        received = live.task.kind is TaskKind.KV_RECEIVE
        if received and member.stand is not Stand.LEAVING:
            self.counters.kv_received += 1
            member.context_tokens = member.request.prompt_tokens
            member.last_token_at_ns = at_ns
            self._book.move(member, Stand.DECODING)
            self.other_round_due = True
            return
        self.counters.kv_sent += not received
        self.over(member)

    def _token(self, live: LiveRequest, output: Output | None, at_ns: int) -> None:
        live.generated_tokens += 1
        live.last_token_at_ns = at_ns
        if live.generated_tokens >= live.request.max_tokens or (output is not None and output.finish_reason):
            self.counters.completed_requests += 1
            self.over(live)
        elif live.request.hand_over is HandOver.SENDS:
            self._book.move(live, Stand.PREFILLED)
        elif live.stand is Stand.DECODING:
            self._book.to_the_end_of_decoding(live)
        else:
            live.context_tokens = live.request.prompt_tokens
            self._book.move(live, Stand.DECODING)

    def _preempted(self, event: Preempted, now_ns: int) -> None:
        live = self._pool.find(event.task_id)
        self.counters.executed_ns += event.executed_ns - live.executed_ns
        live.executed_ns = event.executed_ns
        asked = self._note_stop(event.task_id, event.at_ns)
        self.other_round_due = True
        self._pool.stop(live, now_ns)
        if live.members:
            self.counters.preemptions += 1
        if not live.members or (asked is not None and asked.then is OnPreempt.RESTART):
            self._discard(live, now_ns)

    def _discard(self, live: LiveTask, now_ns: int) -> None:
        """A preempted task is thrown away; members whose clients stay begin anew."""
        self.commands.append(Discard(live.task.task_id))
        self._end(live, now_ns)
        for member in live.everyone:
            if member.stand is Stand.LEAVING:
                self.over(member)
            else:
                self.commands.append(ReleaseKV(member.request.request_id))
                member.missing_blocks = KV_ON_ITS_WAY_BACK
                self._wait_again(member, 0, now_ns)

    def _failed(self, event: Failed) -> None:
        live = self._pool.find(event.task_id)
        if live is self._pool.executing:
            self.counters.executed_ns += max(0, event.at_ns - live.resumed_at_ns)
        self._end(live, event.at_ns)
        self.other_round_due = True
        for member in live.everyone:
            if member.stand is not Stand.LEAVING:
                self.counters.failed_requests += 1
                self.commands.append(Fail(member.request.request_id, event.reason))
            self.over(member)

    def _cancel(self, event: Cancelled, now_ns: int) -> None:
        live = self._book.find(event.request_id)
        if live is None or live.ended:
            return
        self.counters.cancelled_requests += 1
        task = self._pool.holding(live)
        if task is None:
            self.over(live)
            return
        self._pool.leave(live, task, now_ns)
        if task.members or task.task.kind is not TaskKind.PREFILL:
            return
        if task.state is ItemState.PREEMPTED:
            self._discard(task, now_ns)
            self.other_round_due = True
        elif self._pool.pause is None:
            self._pool.pause = AskedPause(task.task.task_id, now_ns, OnPreempt.PAUSE, for_work=False)
            self.commands.append(Pause(task.task.task_id))

    def _kv_released(self, event: KVReleased) -> None:
        live = self._book.find(event.request_id)
        if live is None or (live.stand is not Stand.RELEASING and live.missing_blocks != KV_ON_ITS_WAY_BACK):
            return
        self._dispatch.kv.release(event.request_id)
        live.missing_blocks = live.blocks
        if live.stand is Stand.RELEASING:
            self._book.forget(live)
        self.other_round_due |= self._dispatch.short_of_memory

    def _send(self, event: SendAsked, now_ns: int) -> None:
        live = self._book.find(event.request_id)
        if live is not None and live.stand is Stand.PREFILLED:  # else its client has left
            self.commands.append(self._dispatch.send(live, now_ns))

    # What events have in common.

    def _wait_again(self, live: LiveRequest, context_tokens: int, now_ns: int) -> None:
        reason = self._dispatch.why_never(live.request, context_tokens, now_ns)
        if reason:
            self.reject(live.request, reason, never=True)
            self.over(live)
        else:
            self._book.wait_again(live, context_tokens)

    def _end(self, live: LiveTask, at_ns: int) -> None:
        self._note_stop(live.task.task_id, at_ns)
        self._pool.end(live)
        self._dispatch.activations.release(live.task.task_id)

    def _note_stop(self, task_id: int, at_ns: int) -> AskedPause | None:
        asked = self._pool.pause
        if asked is None or asked.task_id != task_id:
            return None
        self._pool.pause = None
        if asked.for_work:
            self.counters.blocking_ns.append(max(0, at_ns - asked.at_ns))
        return asked
