"""A device known by its peaks: operator times from the arithmetic of a model (the roofline model)."""

from functools import lru_cache

from engine.core.batch import Task, TaskKind
from engine.model.granularity import Granularity, TileSettings
from engine.model.operators import plan_prefill
from engine.model.segments import Segment, segments_of
from engine.model.shape import ModelShape
from engine.simulation.accelerators import Accelerator
from engine.simulation.devices.operator_time import OperatorTimes
from engine.simulation.devices.plan_times import HALF_ENDS, LAYER_ENDS, timed
from engine.simulation.timed_program import TimedProgram

KEPT_PROGRAMS = 512


class RooflineDevice:
    """A model on `tensor_parallel` accelerators of one kind, which compute every operator together.

    A prefill, a chunk after cached tokens and a decode step are priced alike, by their rows and contexts; a decode step
    comes out bound by the bytes of weights and KV. Chunks pay what they cost: the overhead and the launches of every
    step, rows that fill no tile, weights and earlier KV read again.

    element_bytes: of weights, activations and KV.
    half_layer_sync: charge the accelerator's `half_layer_sync_s` after each half of a layer (FlowPrefill as released),
        at granularity `layer` after each layer: it waits where it may stop, and finer stops need no further wait.
    Raises ValueError for a model that does not divide into the ranks.
    """

    def __init__(
        self,
        shape: ModelShape,
        accelerator: Accelerator,
        tensor_parallel: int = 1,
        granularity: Granularity = Granularity.OPERATOR,
        tiles: TileSettings | None = None,
        element_bytes: int = 2,
        *,
        half_layer_sync: bool = False,
    ) -> None:
        self._shape = shape
        self._granularity, self._tiles = granularity, tiles
        self._times = OperatorTimes(shape, accelerator, tensor_parallel, element_bytes)
        self._step_overhead_s = accelerator.step_overhead_s
        self._sync_s = accelerator.half_layer_sync_s if half_layer_sync else 0.0
        self._sync_after = LAYER_ENDS if granularity is Granularity.LAYER else HALF_ENDS
        self._kept = lru_cache(KEPT_PROGRAMS)(self._program)

    def program(self, task: Task) -> TimedProgram:
        """Times by lengths alone. Raises ValueError for a task that sends KV: it is no computation."""
        if task.kind is TaskKind.KV_SEND:
            raise ValueError("a roofline device has no time for sending KV")
        return self._kept(tuple((s.first_row, s.rows, s.context_tokens, s.last) for s in segments_of(task)))

    def _program(self, lengths: tuple[tuple[int, int, int, bool], ...]) -> TimedProgram:
        segments = [Segment("", *length) for length in lengths]
        plan = plan_prefill(self._shape, segments, self._granularity, self._tiles)
        return timed(plan, self._times.seconds, self._step_overhead_s, self._sync_s, self._sync_after)
