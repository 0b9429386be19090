"""Random arrivals, aborts and memory shortages in simulated worlds of every kind: the invariants of the fake world."""

import dataclasses

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize

from engine.core.request import Request
from engine.scheduling.slack import BatchDeadline
from engine.simulation.devices.curve import CurveDevice
from engine.simulation.settings import SimulationSettings
from tests.fakes.fake_executor import four_operators, uneven_operators
from tests.scheduling.rig import Rig
from tests.scheduling.test_random_events import BATCHINGS, POLICIES, PREEMPT, WORLD, RandomEvents
from tests.simulation.simulated_world import ListedDevice, SimulatedWorld

DEVICES = {
    "layer": ListedDevice(four_operators),
    "operator": ListedDevice(uneven_operators),
    "curve": CurveDevice(0.0, 1e-6, 0.0),
}
TIMES_S = st.sampled_from([0.0, 0.0, 3e-7, 2e-5])


class RandomSimulatedEvents(RandomEvents):
    """As the fake world's, but nothing breaks and every request generates all its tokens."""

    @initialize(
        policy=st.sampled_from(sorted(POLICIES)),
        preempt=st.sampled_from(sorted(PREEMPT)),
        batching=st.sampled_from(sorted(BATCHINGS)),
        device=st.sampled_from(sorted(DEVICES)),
        rule=st.sampled_from(["head", "earliest_live"]),
        rounds=st.sampled_from(["event", "poll", "operator"]),
        noise_cv=st.sampled_from([0.0, 0.05, 0.5]),
        delays_s=st.tuples(TIMES_S, TIMES_S, TIMES_S, TIMES_S),
    )
    def begin(
        self,
        policy: str,
        preempt: str,
        batching: str,
        device: str,
        rule: BatchDeadline,
        rounds: str,
        noise_cv: float,
        delays_s: tuple[float, float, float, float],
    ) -> None:
        if device == "curve" and rounds == "operator":  # it knows no operators
            rounds = "event"
        world = SimulatedWorld(DEVICES[device], SimulationSettings(*delays_s, rounds, 5e-6, noise_cv))
        limits = dataclasses.replace(WORLD, batch_deadline=rule)
        self.rig = Rig(PREEMPT[preempt](POLICIES[policy]()), BATCHINGS[batching](), limits, world)
        self.sent: list[Request] = []
        self.left: set[str] = set()

    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, "rig"):
            assert self.rig.world.executor._held == {}
            assert len(self.rig.world.heap) == 0

    def check_end(self, request: Request, refused: bool) -> None:
        """It ended once, and whoever stayed got all tokens and nothing after the last."""
        sink, name = self.rig.sink, request.request_id
        given = [output.token_id for output in sink.tokens.get(name, []) if output.token_id is not None]
        ends = [output.finish_reason for output in sink.tokens.get(name, []) if output.finish_reason]
        assert len(ends) + refused == 1 or (name in self.left and not ends)
        if ends:
            assert given == list(range(1, request.max_tokens + 1))
            assert sink.tokens[name][-1].finish_reason == "length"


RandomSimulatedEvents.TestCase.settings = settings(
    max_examples=80, stateful_step_count=40, suppress_health_check=list(HealthCheck)
)
test_invariants_hold_after_every_random_event = RandomSimulatedEvents.TestCase
