import pytest

from engine.simulation.devices.curve import CurveDevice
from engine.simulation.settings import SimulationSettings


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"switch_s": -1.0}, "switch_s must be 0 or more"),
        ({"round_s": float("nan")}, "round_s must be 0 or more"),
        ({"noise_cv": float("inf")}, "noise_cv must be 0 or more"),
        ({"rounds": "often"}, "rounds must be one of event, poll, operator, got 'often'"),
        ({"rounds": "poll"}, "rounds = poll needs poll_s"),
        ({"noise_seed": -1}, "noise_seed"),
    ],
)
def test_settings_that_cannot_be(changed: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        SimulationSettings(**changed)


@pytest.mark.parametrize("curve", [(0.0, 0.0, 0.0), (-1.0, 1.0, 1.0), (1.0, float("nan"), 0.0)])
def test_a_curve_that_cannot_be(curve: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="curve"):
        CurveDevice(*curve)
