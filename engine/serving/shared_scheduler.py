"""The scheduler of an engine that is asked for its state while it runs."""

import threading
from collections.abc import Callable, Sequence

from engine.core.batch import Task
from engine.core.commands import Command
from engine.core.events import Event
from engine.core.ports import Batching, Policy, Predictor
from engine.scheduling.scheduler import Scheduler, SchedulerSettings
from engine.serving.engine_state import LiveState, Snapshot


class SharedScheduler(Scheduler):
    """A scheduler that another thread may look at between two calls."""

    def __init__(
        self,
        policy: Policy,
        batching: Batching,
        predictor: Predictor,
        settings: SchedulerSettings,
        activation_bytes: Callable[[Task], int],
    ) -> None:
        super().__init__(policy, batching, predictor, settings, activation_bytes)
        self._kv_blocks_total = settings.kv_blocks
        self._sharing = threading.Lock()

    def handle(self, events: Sequence[Event], now_ns: int) -> list[Command]:
        """As the scheduler's."""
        with self._sharing:
            return super().handle(events, now_ns)

    def add_scheduling_ns(self, spent_ns: int) -> None:
        """As the scheduler's."""
        with self._sharing:
            super().add_scheduling_ns(spent_ns)

    def snapshot(self, reset: bool) -> Snapshot:
        """Counters and state at one instant between two calls; reset: the counters start anew."""
        with self._sharing:
            report, live = self.report(), self.live
            if reset:
                self.reset_report()
            state = LiveState(
                waiting=live.waiting,
                executing=live.executing,
                preempted=live.preempted,
                decoding=live.decoding,
                kv_blocks_free=self.kv_free_blocks,
                kv_blocks_total=self._kv_blocks_total,
                activation_bytes=self.activation_held_bytes,
                handing_over=live.handing_over,
            )
        return Snapshot(report, state)
