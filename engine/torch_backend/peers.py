"""The executor's sight of the processes that compute its tasks with it; with one rank there is nobody."""

from collections.abc import Callable, Sequence
from typing import Protocol

from engine.core.batch import Task
from engine.torch_backend.gate import Gate, LaunchWindow
from engine.torch_backend.program import Operator, Program


class PeersLostError(RuntimeError):
    """A rank is gone or no longer does what the others do; the message is a sentence."""


class Peers(Protocol):
    """The other ranks. Each keeps KV blocks and tasks of its own, and is told of every change in this one's order.

    Called by one thread at a time, but `run`: the others' calls may come meanwhile.
    """

    def allocate(self, request_id: str, tokens: int) -> None:
        """A request got KV blocks for so many positions."""
        ...

    def free(self, request_id: str) -> None:
        """A request's KV blocks are free again."""
        ...

    def plan(self, task: Task, token_ids: Sequence[int]) -> None:
        """A task is about to be planned. token_ids: of its rows."""
        ...

    def drop(self, task_id: int) -> None:
        """A task is over."""
        ...

    def run(
        self,
        task_id: int,
        program: Program,
        gate: Gate,
        window: LaunchWindow | None,
        predicted_ns: Callable[[Operator], int],
    ) -> bool:
        """Go on with a task until its end (True) or until the gate stops it (False), here and everywhere.

        window: bounds what is launched ahead on a device; None on a CPU.
        Raises what an operator raised; PeersLostError when the ranks do not go together any more.
        """
        ...


class Nobody:
    """One rank computes everything."""

    def allocate(self, request_id: str, tokens: int) -> None:
        """Nobody to tell."""

    def free(self, request_id: str) -> None:
        """Nobody to tell."""

    def plan(self, task: Task, token_ids: Sequence[int]) -> None:
        """Nobody to tell."""

    def drop(self, task_id: int) -> None:
        """Nobody to tell."""

    def run(
        self,
        task_id: int,  # noqa: ARG002 - for the others
        program: Program,
        gate: Gate,
        window: LaunchWindow | None,
        predicted_ns: Callable[[Operator], int],
    ) -> bool:
        """The program's own loop."""
        return program.run(gate) if window is None else program.launch(gate, window, predicted_ns)
