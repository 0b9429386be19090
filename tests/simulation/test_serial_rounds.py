"""Rounds of one host thread: what happens during a round is seen once it is over."""

import pytest

from engine.core.clock import NS_PER_S
from engine.simulation.settings import SimulationSettings
from tests.simulation.simulated_world import SimulatedWorld

ROUND_NS, HAPPENS_AT_NS = 100, (10, 60, 70, 200, 900)


def seen_at_ns(settings: SimulationSettings) -> list[tuple[int, int]]:
    """The instants at which something is seen, and how much."""
    world = SimulatedWorld(settings=settings)
    for number, at_ns in enumerate(HAPPENS_AT_NS):
        world.cancel(f"r{number}", at_ns)
    found = []
    while events := world.wait():
        found.append((world.now_ns(), len(events)))
    return found


@pytest.mark.parametrize(
    ("settings", "seen"),
    [
        ({}, [(10, 1), (60, 1), (70, 1), (200, 1), (900, 1)]),
        ({"serial_rounds": True}, [(10, 1), (110, 2), (210, 1), (900, 1)]),
        ({"serial_rounds": True, "rounds": "poll", "poll_s": 40 / NS_PER_S}, [(40, 1), (160, 2), (280, 1), (920, 1)]),
    ],
)
def test_what_happens_during_a_round_waits_for_the_next(settings: dict, seen: list[tuple[int, int]]) -> None:
    assert seen_at_ns(SimulationSettings(round_s=ROUND_NS / NS_PER_S, **settings)) == seen
