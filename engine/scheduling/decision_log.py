"""Every call of a scheduler and its answer, one JSON line each, for replay.

First line: {"version": 1, "settings": {...}}; then {"now_ns", "events", "commands"} per call. Fed to a fresh
scheduler of the same settings, the events yield the same commands, exactly.
"""

import collections.abc as c
import dataclasses
import json
from dataclasses import dataclass
from typing import Any, Final, TextIO

from engine.core.batch import Sequence, Task, TaskKind
from engine.core.commands import Command, Discard, Fail, Pause, Reject, ReleaseKV, Resume, Start, Wake
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
from engine.core.request import Request
from engine.core.slo import SLO
from engine.scheduling.scheduler import Scheduler

VERSION: Final = 1
_EVENTS: Final[dict[str, type]] = {
    kind.__name__: kind for kind in (Completion, Preempted, Failed, Cancelled, KVReleased, SendAsked, Arrival, Woken)
}
_COMMANDS: Final[dict[str, type]] = {
    kind.__name__: kind for kind in (Start, Pause, Resume, Discard, ReleaseKV, Reject, Fail, Wake)
}


class DecisionLogError(Exception):
    """The file is no decision log of this version; the message says where."""


@dataclass(frozen=True, slots=True)
class LoggedCall:
    """One call of `handle` and its answer."""

    now_ns: int
    events: tuple[Event, ...]
    commands: tuple[Command, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """A call whose replay answered otherwise. call: counted from 0."""

    call: int
    logged: tuple[Command, ...]
    replayed: tuple[Command, ...]


class DecisionLog:
    """Writes calls as they happen. settings: whatever builds the same scheduler again."""

    def __init__(self, file: TextIO, settings: c.Mapping[str, Any]) -> None:
        self._file = file
        self._line({"version": VERSION, "settings": dict(settings)})

    def write(self, now_ns: int, events: c.Sequence[Event], commands: c.Sequence[Command]) -> None:
        """One call."""
        self._line({"now_ns": now_ns, "events": [_plain(e) for e in events], "commands": [_plain(m) for m in commands]})

    def _line(self, content: object) -> None:
        self._file.write(json.dumps(content, separators=(",", ":")) + "\n")


def read(lines: c.Iterable[str]) -> tuple[dict[str, Any], c.Iterator[LoggedCall]]:
    """Settings and calls of a log. Raises DecisionLogError for another version or a broken line."""
    numbered = enumerate(lines, start=1)
    _, first = next(numbered, (1, ""))
    header = _parsed(1, first)
    settings = header.get("settings")
    if header.get("version") != VERSION or not isinstance(settings, dict):
        raise DecisionLogError(f"line 1: not a decision log of version {VERSION}")
    return settings, (_call(number, line) for number, line in numbered if line.strip())


def replay(calls: c.Iterable[LoggedCall], scheduler: Scheduler) -> list[Difference]:
    """Feed a fresh scheduler the logged events; where its commands differ."""
    found = []
    for number, call in enumerate(calls):
        commands = tuple(scheduler.handle(call.events, call.now_ns))
        if commands != call.commands:
            found.append(Difference(number, call.commands, commands))
    return found


def _plain(value: Event | Command) -> dict[str, Any]:
    plain = dataclasses.asdict(value)
    if isinstance(value, Arrival):
        plain["request"].pop("due_at_ns")
    return {"type": type(value).__name__, **plain}


def _parsed(number: int, line: str) -> dict[str, Any]:
    try:
        parsed = json.loads(line)
    except ValueError as error:
        raise DecisionLogError(f"line {number}: {error}") from error
    if not isinstance(parsed, dict):
        raise DecisionLogError(f"line {number}: not an object")
    return parsed


def _call(number: int, line: str) -> LoggedCall:
    parsed = _parsed(number, line)
    try:
        return LoggedCall(
            parsed["now_ns"],
            tuple(_event(given) for given in parsed["events"]),
            tuple(_command(given) for given in parsed["commands"]),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DecisionLogError(f"line {number}: {error!r}") from error


def _event(given: dict[str, Any]) -> Event:
    kind = _EVENTS[given.pop("type")]
    if kind is Arrival:
        request = given["request"]
        given["request"] = Request(**{**request, "slo": SLO(**request["slo"])})
    if kind is Completion:
        given["outputs"] = tuple(Output(**output) for output in given["outputs"])
    event: Event = kind(**given)
    return event


def _command(given: dict[str, Any]) -> Command:
    kind = _COMMANDS[given.pop("type")]
    if kind is Start:
        task = given["task"]
        sequences = tuple(Sequence(**sequence) for sequence in task["sequences"])
        given["task"] = Task(task["task_id"], TaskKind(task["kind"]), sequences)
    command: Command = kind(**given)
    return command
