"""A task as a program: its operators in order, and the cursor."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from engine.torch_backend.gate import Gate, LaunchWindow
from engine.torch_backend.granularity import (
    Granularity,
    Span,
    TileSettings,
    attention_tiles,
    is_boundary,
    pairs_of,
    row_tiles,
)
from engine.torch_backend.models.llama import Llama
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
        try:
            for step, boundary in zip(self._steps[index:], self._boundary[index:], strict=True):
                if boundary and gate.stop_index <= index:
                    return False
                step()
                index += 1
            return True
        finally:
            self.cursor = index

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
                window.launched(predicted_ns(operator))
                self.cursor += 1
            return True
        finally:
            window.drain()


Choice = tuple[SamplingSettings, torch.Generator | None]
"""How one sequence's next token is chosen."""


_Planned = tuple[str, Callable[[], None], int]


def plan_program(
    model: Llama,
    state: TaskState,
    choices: Sequence[Choice],
    granularity: Granularity,
    tiles: TileSettings | None = None,
) -> Program:
    """The operators of a task, layer by layer.

    choices: one for each of `state.last_rows`; empty = no sequence ends its prompt, the program has no head.
    tiles: used with granularity `tile` only.
    """
    cuts = (tiles or TileSettings()) if granularity is Granularity.TILE else None
    rows = row_tiles(state.rows, cuts.rows if cuts else state.rows)
    spans = attention_tiles(state.segments, cuts.pairs) if cuts else [_all_rows(state)]
    planned: list[_Planned] = [("embedding", partial(model.embedding, state), 0)]
    for layer in range(model.shape.layers):
        planned += _layer(model, state, layer, rows, spans)
    if choices:
        planned.append(("head", partial(_head, model, state, choices), _head_flops(model, len(choices))))
    operators = [
        Operator(name, run, is_boundary(granularity, name.split(".")[-1].split("[")[0]), flops)
        for name, run, flops in planned
    ]
    return Program(operators, state)


def _layer(
    model: Llama, state: TaskState, layer: int, rows: list[tuple[int, int]], spans: list[tuple[Span, ...]]
) -> list[_Planned]:
    shape = model.shape
    hidden, middle, query = shape.hidden_size, shape.intermediate_size, shape.heads * shape.head_dim
    key_value = 2 * shape.kv_heads * shape.head_dim

    def by_rows(name: str, operator: Callable[[int, TaskState, int, int], None], weights: int) -> list[_Planned]:
        return [
            (
                _name(layer, name, tile, len(rows)),
                partial(operator, layer, state, *span),
                2 * weights * (span[1] - span[0]),
            )
            for tile, span in enumerate(rows)
        ]

    attention = [
        (
            _name(layer, "attention", tile, len(spans)),
            partial(model.attention, layer, state, part),
            4 * query * pairs_of(part),
        )
        for tile, part in enumerate(spans)
    ]
    return [
        *by_rows("qkv_proj", model.qkv_proj, hidden * (query + key_value)),
        *attention,
        *by_rows("o_proj", model.o_proj, query * hidden),
        *by_rows("gate_up_proj", model.gate_up_proj, hidden * 2 * middle),
        *by_rows("down_proj", model.down_proj, middle * hidden),
    ]


def _name(layer: int, operator: str, tile: int, count: int) -> str:
    return f"L{layer}.{operator}" if count == 1 else f"L{layer}.{operator}[{tile}/{count}]"


def _all_rows(state: TaskState) -> tuple[Span, ...]:
    return tuple((segment, 0, segment.rows) for segment in state.segments)


def _head(model: Llama, state: TaskState, choices: Sequence[Choice]) -> None:
    model.head(state)
    assert state.logits is not None
    state.sampled = sample(state.logits, choices)


def _head_flops(model: Llama, sequences: int) -> int:
    return 2 * sequences * model.shape.hidden_size * model.shape.vocab_size
