"""Event -> scheduler -> executor: the loop that joins a scheduler to a world, real or simulated."""

import collections.abc as c
import typing
from typing import Protocol

from engine.core.clock import Clock
from engine.core.commands import Command, ExecutorCommand, Fail, Reject, Wake
from engine.core.events import Completion, Event, Output
from engine.core.ports import EventSource, Executor
from engine.scheduling.scheduler import Scheduler

_FOR_EXECUTOR = typing.get_args(ExecutorCommand)


class OutputSink(Protocol):
    """Where clients' replies come from. Ids of requests that are gone may appear; they are to be ignored."""

    def deliver(self, outputs: c.Sequence[Output]) -> None:
        """What one completed task gave its sequences."""
        ...

    def rejected(self, request_id: str, reason: str, never: bool) -> None:
        """The request was refused; never: so it would be on the idlest engine."""
        ...

    def failed(self, request_id: str, reason: str) -> None:
        """The request's task broke."""
        ...


class DecisionSink(Protocol):
    """Keeps calls of the scheduler for a later replay."""

    def write(self, now_ns: int, events: c.Sequence[Event], commands: c.Sequence[Command]) -> None:
        """One call and its answer."""
        ...


class Driver:
    """Feeds events to the scheduler and its commands to the executor, then tells the clients."""

    def __init__(
        self,
        scheduler: Scheduler,
        executor: Executor,
        source: EventSource,
        clock: Clock,
        sink: OutputSink,
        log: DecisionSink | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._executor = executor
        self._source = source
        self._clock = clock
        self._sink = sink
        self._log = log

    def run(self) -> None:
        """Until the source is closed."""
        while events := self._source.wait():
            self.step(events)

    def step(self, events: c.Sequence[Event]) -> None:
        """One scheduling call. The executor hears first: what follows costs the device nothing."""
        now_ns = self._clock.now_ns()
        commands = self._scheduler.handle(events, now_ns)
        decided_at_ns = self._clock.now_ns()
        self._executor.submit([command for command in commands if isinstance(command, _FOR_EXECUTOR)])
        self._scheduler.add_scheduling_ns(decided_at_ns - now_ns)
        if self._log is not None:
            self._log.write(now_ns, events, commands)
        for event in events:
            if isinstance(event, Completion):
                self._sink.deliver(event.outputs)
        for command in commands:
            if isinstance(command, Reject):
                self._sink.rejected(command.request_id, command.reason, command.never)
            elif isinstance(command, Fail):
                self._sink.failed(command.request_id, command.reason)
            elif isinstance(command, Wake):
                self._source.wake_at(command.at_ns)
