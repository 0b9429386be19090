"""What the scheduler asks for. The executor obeys in order; the frontend hears of rejections and failures."""

from dataclasses import dataclass, field

from engine.core.batch import Task


@dataclass(frozen=True, slots=True)
class Start:
    """Submission control: execute this new task. Given only while nothing executes, but for hand-overs of KV.

    A hand-over runs beside what executes, is never paused, and is answered by Completion or Failed.
    """

    task: Task


@dataclass(frozen=True, slots=True)
class Pause:
    """Preemption control: stop the executing task at the next operator boundary.

    Answered by Preempted, or by Completion or Failed when that came first.
    """

    task_id: int


@dataclass(frozen=True, slots=True)
class Resume:
    """Resumption control: go on with a preempted task where it stopped. Given only while nothing executes."""

    task_id: int


@dataclass(frozen=True, slots=True)
class Discard:
    """Forget a preempted task (all its members left). Its activations are free at once; not answered."""

    task_id: int


@dataclass(frozen=True, slots=True)
class ReleaseKV:
    """Free the KV blocks of a request once no launched write is pending. Answered by KVReleased."""

    request_id: str


@dataclass(frozen=True, slots=True)
class Reject:
    """The request is refused; `reason` is a sentence for its client. Not answered.

    never: it could not run on the idlest engine either, so that trying again is of no use. Not compared: a decision
    log written before it was there replays.
    """

    request_id: str
    reason: str
    never: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Fail:
    """The request's task broke; `reason` is a sentence for its client. Not answered."""

    request_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Wake:
    """Something becomes urgent at this instant though nothing happens then. Answered by Woken, by the event source."""

    at_ns: int


ExecutorCommand = Start | Pause | Resume | Discard | ReleaseKV
Command = ExecutorCommand | Reject | Fail | Wake
