"""A task as a program: its operators in order, and the cursor."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from engine.model.granularity import Granularity, TileSettings
from engine.model.operators import PrefillPlan, plan_prefill
from engine.torch_backend.gate import Gate, LaunchWindow
from engine.torch_backend.models.decoder import Decoder
from engine.torch_backend.sampling import SamplingSettings, sample
from engine.torch_backend.task_state import TaskState


@dataclass(frozen=True, slots=True)
class Operator:
    """One step. name: "L3.attention", of a tile "L3.attention[1/4]"; flops: its multiplications and additions."""

    name: str
    run: Callable[[], None]
    boundary: bool
    flops: int


class Program:
    """Runs its operators once each, in order. `cursor`: index of the next one."""

    def __init__(self, operators: list[Operator], state: TaskState) -> None:
        self.operators = operators
        self.state = state
        self.cursor = 0
        # Flat lists: the loop below touches nothing else between two operators.
        self._steps = [operator.run for operator in operators]
        self._boundary = [operator.boundary for operator in operators]

    def run(self, gate: Gate) -> bool:
        """Go on until the end (True) or until the gate stops it before an operator (False). For a CPU."""
        index = self.cursor
        for step, boundary in zip(self._steps[index:], self._boundary[index:], strict=True):
            if boundary and gate.stop_index <= index:
                return False
            step()
            # Kept up to date, not only at the end: the watchdog reads it meanwhile.
            self.cursor = index = index + 1
        return True

    def launch(self, gate: Gate, window: LaunchWindow, predicted_ns: Callable[[Operator], int]) -> bool:
        """As `run`, on a device that works behind the host: the cursor moves as operators are launched.

        Returns when all that was launched is done.
        """
        try:
            while self.cursor < len(self.operators):
                operator = self.operators[self.cursor]
                window.before_launch()
                if operator.boundary and gate.stop_index <= self.cursor:
                    return False
                operator.run()
                window.launched(predicted_ns(operator), operator.flops)
                self.cursor += 1
            return True
        finally:
            window.drain()


Choice = tuple[SamplingSettings, torch.Generator | None]
"""How one sequence's next token is chosen."""


def plan_program(
    model: Decoder,
    state: TaskState,
    choices: Sequence[Choice],
    granularity: Granularity,
    tiles: TileSettings | None = None,
) -> Program:
    """The task's operators in the order of `plan_prefill`, each with its kernel.

    choices: one for each of `state.last_rows`; empty when no sequence ends its prompt: the program has no head.
    tiles: used with granularity `tile` only.
    """
    plan = plan_prefill(model.shape, state.segments, granularity, tiles)
    operators = [
        Operator(name, run, planned.boundary, planned.flops)
        for (name, planned), run in zip(plan.operators(), _kernels(plan, model, state, choices), strict=True)
    ]
    return Program(operators, state)


def _kernels(
    plan: PrefillPlan, model: Decoder, state: TaskState, choices: Sequence[Choice]
) -> Iterator[Callable[[], None]]:
    """What each operator of the plan runs, in its order."""
    by_rows = model.row_kernels()
    lengths = [model.lengths_of(planned.spans) for planned in plan.layer]
    yield partial(model.embedding, state)
    for layer in range(plan.layers):
        for planned, its_lengths in zip(plan.layer, lengths, strict=True):
            if planned.kind == "attention":
                yield partial(model.attention, layer, state, planned.spans, its_lengths)
            else:
                yield partial(by_rows[planned.kind], layer, state, planned.first_row, planned.stop_row)
    if plan.last:
        yield partial(_head, model, state, choices)


def _head(model: Decoder, state: TaskState, choices: Sequence[Choice]) -> None:
    model.head(state)
    assert state.logits is not None
    state.sampled = sample(state.logits, choices)
