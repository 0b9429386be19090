"""A device known by a measured profile: python -m engine.torch_backend.profile."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from engine.core.batch import Task, TaskKind
from engine.model.granularity import Granularity, TileSettings
from engine.model.operators import PrefillPlan, plan_prefill
from engine.model.segments import Segment, segments_of
from engine.model.shape import ModelShape
from engine.scheduling.predictors.operator_sum import OperatorSample
from engine.scheduling.predictors.polynomial import PrefillSample
from engine.scheduling.predictors.sampled_curve import RangeError
from engine.simulation.devices.plan_times import timed
from engine.simulation.devices.profile_curves import ProfileCurves
from engine.simulation.timed_program import TimedProgram

KEPT_PROGRAMS = 512


class ProfiledDevice:
    """Times of `samples`, scaled so that a prompt prefilled alone takes what `prefills` measured for it as a whole.

    Operators measured one by one add up to a little less or more than the whole; the scale, by the rows of the task, is
    read between the lengths where both were measured. Without `prefills` it is 1. Prefills after cached tokens are not
    used: where they differ from this model, that is its error.
    step_overhead_s: of every task, beyond what the whole prefill measured.
    Raises ValueError for an operator of the model that the profile lacks, and for `prefills` that share no length with
    the operators.
    """

    def __init__(
        self,
        shape: ModelShape,
        samples: Sequence[OperatorSample],
        granularity: Granularity = Granularity.OPERATOR,
        tiles: TileSettings | None = None,
        step_overhead_s: float = 0.0,
        prefills: Sequence[PrefillSample] = (),
    ) -> None:
        if step_overhead_s < 0:
            raise ValueError(f"step_overhead_s must be 0 or more, got {step_overhead_s}")
        self._shape = shape
        self._granularity, self._tiles = granularity, tiles
        self._step_overhead_s = step_overhead_s
        whole = self._plan(((0, 1, 0, True),), Granularity.OPERATOR)
        self._curves = ProfileCurves(samples, dict.fromkeys(operator.kind for _, operator in whole.operators()))
        self._scales = self._measured_scales(prefills)
        self._kept = lru_cache(KEPT_PROGRAMS)(self._program)

    def program(self, task: Task) -> TimedProgram:
        """Raises ValueError for a task that sends KV, RangeError (one) for a length that was not measured around."""
        if task.kind is TaskKind.KV_SEND:
            raise ValueError("a profiled device has no time for sending KV")
        return self._kept(tuple((s.first_row, s.rows, s.context_tokens, s.last) for s in segments_of(task)))

    def _program(self, lengths: tuple[tuple[int, int, int, bool], ...]) -> TimedProgram:
        rows = sum(length[1] for length in lengths)
        scale = self._scale(rows)
        plan = self._plan(lengths, self._granularity)
        return timed(plan, lambda operator: scale * self._curves.seconds(operator, rows), self._step_overhead_s)

    def _plan(self, lengths: Sequence[tuple[int, int, int, bool]], granularity: Granularity) -> PrefillPlan:
        return plan_prefill(self._shape, [Segment("", *length) for length in lengths], granularity, self._tiles)

    def _scale(self, rows: int) -> float:
        if not self._scales:
            return 1.0
        sizes = list(self._scales)
        if not sizes[0] <= rows <= sizes[-1]:
            raise RangeError(f"whole prefills were measured from {sizes[0]} to {sizes[-1]} tokens, not at {rows}")
        return float(np.interp(rows, sizes, list(self._scales.values())))

    def _measured_scales(self, prefills: Sequence[PrefillSample]) -> dict[int, float]:
        """Whole over sum of operators, by rows, rising."""
        scales: dict[int, float] = {}
        for sample in sorted(prefills, key=lambda sample: sample.new_tokens):
            if sample.context_tokens:
                continue
            plan = self._plan(((0, sample.new_tokens, 0, True),), Granularity.OPERATOR)
            try:
                parts_s = sum(self._curves.seconds(operator, sample.new_tokens) for _, operator in plan.operators())
            except RangeError:
                continue  # shorter or longer than the operators were measured
            scales[sample.new_tokens] = sample.seconds / parts_s
        if prefills and not scales:
            raise ValueError("no whole prefill was measured within the lengths of the operators")
        return scales
