"""One clairvoyant bound: of the requests of a point, whatever the system."""

import functools
import traceback
from dataclasses import dataclass

from engine.core.clock import NS_PER_S
from harness.assembly.least_cost_of import bound_jobs, least_cost_of
from harness.assembly.reading import SettingsError
from harness.assembly.settings import PointSettings
from harness.assembly.simulated import scheduled
from harness.experiments.job_runner import Failure
from harness.experiments.prepare import Prepared
from harness.measurement.bound import Bound, clairvoyant_bound
from harness.measurement.least_cost import LeastCost
from workloads.length_scale import effective_tokens


@dataclass(frozen=True, slots=True)
class BoundTask:
    """key: of the bound. ready: any of the points it holds for. batch_tokens: largest batch or chunk, trace tokens.

    worst_class: solve for the worst class too.
    """

    key: str
    ready: Prepared
    batch_tokens: int
    worst_class: bool = True


def solve_or_fail(task: BoundTask) -> Bound | Failure:
    """For processes of their own."""
    try:
        return _solver().solve(task)
    except SettingsError as error:
        return Failure(str(error))
    except ImportError as error:
        return Failure(f"a bound needs scipy, which cannot be imported: {error}")
    except Exception as error:  # noqa: BLE001 - a fault must cost one bound, not the others; it is told in full
        return Failure(f"{type(error).__name__}: {error}", traceback.format_exc())


class BoundSolver:
    """Solves bounds; those of one model and device share the least costs."""

    def __init__(self) -> None:
        self._costs: dict[str, LeastCost] = {}

    def solve(self, task: BoundTask) -> Bound:
        """Raises SettingsError."""
        point, ready = task.ready.settings, task.ready
        planned = scheduled(point, ready.window, ready.given.slo_speed_factor)
        from_ns = planned[0].due_ns + round(ready.discard_first_s * NS_PER_S) if planned else 0
        counted = [one for one in planned if one.due_ns >= from_ns]  # the bound of some requests holds among others too
        jobs = bound_jobs(counted, self._cost(point, task.batch_tokens))
        return clairvoyant_bound(jobs, point.system.prefill_instances or 1, worst_class=task.worst_class)

    def _cost(self, point: PointSettings, batch_tokens: int) -> LeastCost:
        key = repr((point.model, point.device.simulation, batch_tokens))
        if key not in self._costs:
            self._costs[key] = least_cost_of(point, effective_tokens(batch_tokens, point.model.length_scale))
        return self._costs[key]


@functools.cache
def _solver() -> BoundSolver:
    """One for each process."""
    return BoundSolver()
