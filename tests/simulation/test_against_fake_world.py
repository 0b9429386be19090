"""Undisturbed, the simulated world and the tests' fake world are the same: command for command, instant for instant.

Short of KV they are not: a task that KV released at its very start makes unwanted runs one operator in the fake world,
none in the simulated one (nor in the engine's own).
"""

import dataclasses
import random

import pytest

from engine.core.events import Event
from engine.core.request import Request
from engine.core.slo import SLO
from tests.fakes.fake_executor import FakeExecutor, four_operators, uneven_operators
from tests.scheduling.rig import Rig
from tests.scheduling.test_random_events import SYSTEMS, WORLD
from tests.simulation.simulated_world import ListedDevice, SimulatedWorld


def played(rig: Rig, seed: int) -> list[tuple[str, int, int | None]]:
    """(kind, instant, time executed) of every event of a random run."""
    draw = random.Random(seed)
    seen: list[Event] = []
    at_ns = 0
    for seq in range(80):
        at_ns += draw.choice([0, 900, 7000, 40_000])
        slo = SLO(draw.choice([None, 1, 20_000, 90_000, 10**9]))
        rig.world.arrive(Request(f"A{seq}", seq, at_ns, draw.randint(1, 150), draw.choice([1, 1, 4]), slo))
        if draw.random() < 0.1:
            rig.world.cancel(f"A{seq}", at_ns + draw.choice([0, 5000, 60_000]))
    while events := rig.step():
        seen += events
    rig.check_baseline()
    return [(type(event).__name__, event.at_ns, getattr(event, "executed_ns", None)) for event in seen]


ENOUGH_KV = dataclasses.replace(WORLD, kv_blocks=10_000)


@pytest.mark.parametrize("operators", [four_operators, uneven_operators], ids=["layer", "operator"])
@pytest.mark.parametrize("system", sorted(SYSTEMS))
def test_the_same_run(system: str, operators: object) -> None:
    fake = Rig(*SYSTEMS[system](), ENOUGH_KV, FakeExecutor(operators))
    simulated = Rig(*SYSTEMS[system](), ENOUGH_KV, SimulatedWorld(ListedDevice(operators)))
    assert played(simulated, seed=3) == played(fake, seed=3)
    assert simulated.world.commands == fake.world.commands
    assert simulated.sink.tokens == fake.sink.tokens
    assert simulated.scheduler.report() == fake.scheduler.report()
