"""The least device time of a point's requests, for the clairvoyant bound (see harness.measurement.least_cost).

On a roofline `shared` is everything that depends on a task's rows together: its overhead, every launch, the products.
The head is left out, since a chunk that does not end a prompt has none; launches and rows are those of operators that
are not split. `own` is the arithmetic of attention alone, which neither batching nor chunking makes less.
"""

from collections.abc import Sequence

from engine.core.clock import NS_PER_S
from engine.model.granularity import Granularity
from engine.model.operators import PlannedOperator, plan_prefill
from engine.model.segments import Segment
from engine.simulation.devices.operator_time import OperatorTimes
from engine.simulation.devices.rank_sizes import RankSizes
from harness.assembly.reading import SettingsError
from harness.assembly.settings import PointSettings
from harness.assembly.simulated import ELEMENT_BYTES, shape_of, simulation_of
from harness.measurement.bound import Job
from harness.measurement.least_cost import LeastCost
from workloads.plan import ScheduledRequest


def least_cost_of(point: PointSettings, batch_tokens: int) -> LeastCost:
    """For every system whose tasks of several prompts, and chunks, hold at most batch_tokens (as sent).

    Raises SettingsError for a device whose times are drawn or measured: no least is known of them.
    """
    given = simulation_of(point)
    if given.noise_cv > 0:
        raise SettingsError(
            "a bound needs device.simulation.noise_cv=0 (under noise no least time is known): or bound=null"
        )
    if given.curve is not None:
        c0, c1, c2 = given.curve
        return LeastCost(lambda rows: c0 + c1 * rows, lambda tokens: c2 * tokens * tokens, batch_tokens)
    if given.accelerator is None:
        raise SettingsError(
            f"device.simulation.model={given.model} has no bound: use a roofline or a curve, or bound=null"
        )
    return _of_roofline(point, batch_tokens)


def bound_jobs(planned: Sequence[ScheduledRequest], cost: LeastCost) -> tuple[Job, ...]:
    """The requests that state a TTFT SLO, as the bound wants them."""
    return tuple(
        Job(
            one.due_ns / NS_PER_S,
            (one.due_ns + one.objective.slo.ttft_ns) / NS_PER_S,
            cost.seconds(one.prompt_tokens),
            one.objective.task,
        )
        for one in planned
        if one.objective.slo.ttft_ns is not None
    )


def _of_roofline(point: PointSettings, batch_tokens: int) -> LeastCost:
    accelerator, shape, ranks = simulation_of(point).accelerator, shape_of(point), point.model.tensor_parallel or 1
    assert accelerator is not None
    times = OperatorTimes(shape, accelerator, ranks, ELEMENT_BYTES[point.model.dtype])
    attention_flops = 4 * RankSizes.of(shape, ranks).query / (accelerator.attention_efficiency * accelerator.peak_flops)

    def seconds(operator: PlannedOperator) -> float:
        return accelerator.launch_s if operator.kind == "attention" else times.seconds(operator)

    def shared(rows: int) -> float:
        plan = plan_prefill(shape, [Segment("", 0, rows, 0, False)], Granularity.NONE)
        once = sum(map(seconds, (*plan.first, *plan.last)))
        return accelerator.step_overhead_s + once + plan.layers * sum(map(seconds, plan.layer))

    def own(tokens: int) -> float:
        return shape.layers * attention_flops * tokens * (tokens + 1) / 2

    return LeastCost(shared, own, batch_tokens)
