"""Max goodput of a published list of lengths on a device known by one curve, by the parts of the engine alone.

A separately written small simulation of the same set-up gives 2.36 req/s for FCFS and 13.6 req/s for S-EDF with
operator-level preemption; this one must agree within 2 %.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from engine.core.batch import Task
from engine.core.clock import seconds_to_ns
from engine.core.ports import Policy
from engine.core.record import RequestRecord, Status
from engine.core.slo import SLO
from engine.scheduling.batching import NoBatching
from engine.scheduling.policies.fcfs import FCFS
from engine.scheduling.policies.non_preemptive import NonPreemptive
from engine.scheduling.policies.s_edf import SlackEDF
from engine.scheduling.predictors.polynomial import PolynomialPredictor
from engine.scheduling.scheduler import Scheduler, SchedulerSettings
from engine.simulation.clients import SimulatedRequest
from engine.simulation.devices.curve import CurveDevice
from engine.simulation.run import simulate
from engine.simulation.settings import SimulationSettings

CURVE: Final = (0.017373170911, 5.717282857e-5, 2.686895652e-9)
"""c0, c1, c2 of the device, and of the predictor: what one prefill takes, in seconds."""
SWITCH_S: Final = 0.0025
"""Device time lost at each switch away from an unfinished task."""
TTFT_SLO_S: Final = {"text": 0.25, "image": 0.5, "search": 4.0, "file": 6.0}
SEEDS: Final = (0, 1, 2, 3, 4)
TARGET: Final = 0.90
TOLERANCE: Final = 0.01
REFERENCE_RPS: Final = {"fcfs": 2.36, "s_edf": 13.6}
"""Max goodput as the other simulation has it, by policy."""
POLICIES: Final[dict[str, Callable[[], Policy]]] = {"fcfs": lambda: NonPreemptive(FCFS()), "s_edf": SlackEDF}

_WITHOUT_LIMIT: Final = 1 << 40


@dataclass(frozen=True, slots=True)
class PromptLength:
    """One prompt of the list. task: its class, which decides its SLO."""

    task: str
    tokens: int


def requests_at(lengths: Sequence[PromptLength], rate_rps: float, seed: int) -> list[SimulatedRequest]:
    """The list in its order, at Poisson arrivals of this rate."""
    at_s = np.random.default_rng(seed).exponential(1 / rate_rps, len(lengths)).cumsum()
    return [
        SimulatedRequest(
            f"r{place}", seconds_to_ns(at), each.tokens, 1, SLO(seconds_to_ns(TTFT_SLO_S[each.task])), each.task
        )
        for place, (each, at) in enumerate(zip(lengths, at_s.tolist(), strict=True))
    ]


def attainment(lengths: Sequence[PromptLength], policy: Policy, rate_rps: float, seed: int) -> float:
    """Share of requests whose first token comes within its SLO: one run."""
    limits = SchedulerSettings(_WITHOUT_LIMIT, 1, _WITHOUT_LIMIT, _WITHOUT_LIMIT, max_preempted=_WITHOUT_LIMIT)
    scheduler = Scheduler(policy, NoBatching(), PolynomialPredictor((*CURVE, 0.0)), limits, _no_bytes)
    settings = SimulationSettings(switch_s=SWITCH_S)
    result = simulate(requests_at(lengths, rate_rps, seed), scheduler, CurveDevice(*CURVE), settings)
    return sum(map(_met, result.records)) / len(result.records)


def max_goodput_rps(lengths: Sequence[PromptLength], policy: Callable[[], Policy]) -> float:
    """The rate at which the mean attainment over `SEEDS` crosses `TARGET`, to `TOLERANCE`: bisection.

    Raises ValueError for a list whose attainment is never above the target.
    """

    def enough(rate_rps: float) -> bool:
        return sum(attainment(lengths, policy(), rate_rps, seed) for seed in SEEDS) / len(SEEDS) >= TARGET

    low = high = 1.0
    while not enough(low):
        low /= 2
        if low < 1e-3:
            raise ValueError(f"the attainment of these {len(lengths)} prompts stays under {TARGET} at any rate")
    while enough(high):
        low, high = high, 2 * high
    while high / low > 1 + TOLERANCE:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if enough(middle) else (low, middle)
    return float((low * high) ** 0.5)


def _met(record: RequestRecord) -> bool:
    first_ns, slo_ns = record.first_token_at_ns, record.ttft_slo_ns
    in_time = first_ns is not None and slo_ns is not None and first_ns - record.due_at_ns <= slo_ns
    return in_time and record.status is Status.OK


def _no_bytes(task: Task) -> int:  # memory without limit
    return 0
