"""What rank 0 and the other ranks of a tensor-parallel group tell each other, over a socket pair each."""

from array import array
from dataclasses import dataclass

from engine.core.batch import Task
from engine.torch_backend.settings import ExecutorSettings


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """Arguments of `load_model` that all ranks share. device: its kind, cpu or cuda."""

    name_or_folder: str
    device: str
    dtype: str | None
    dummy: bool
    seed: int
    attention: str = "auto"


@dataclass(frozen=True, slots=True)
class Join:
    """The first message to a rank. store: file the group finds itself by."""

    rank: int
    ranks: int
    store: str
    model: ModelChoice
    executor: ExecutorSettings


@dataclass(frozen=True, slots=True)
class Allocate:
    """Give a request KV blocks."""

    request_id: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Free:
    """Take a request's KV blocks back."""

    request_id: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Plan a task. token_ids: of its rows."""

    task: Task
    token_ids: "array[int]"


@dataclass(frozen=True, slots=True)
class Run:
    """Go on with a task until it stops or ends; answered by Ended."""

    task_id: int


@dataclass(frozen=True, slots=True)
class Drop:
    """Forget a task."""

    task_id: int


@dataclass(frozen=True, slots=True)
class Leave:
    """End the process."""


@dataclass(frozen=True, slots=True)
class Hello:
    """A rank's first answer: it is about to join the group."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The model is loaded."""


@dataclass(frozen=True, slots=True)
class Refused:
    """It cannot be; reason: a sentence."""

    reason: str


@dataclass(frozen=True, slots=True)
class Ended:
    """A stretch of a task is over on this rank. cursor: its next operator. failure: what broke there."""

    cursor: int
    failure: str | None


ToRank = Join | Allocate | Free | Plan | Run | Drop | Leave
FromRank = Hello | Ready | Refused | Ended
