"""Settings of a simulated device: what its operators take, and how a simulated run differs from an ideal one."""

from dataclasses import dataclass
from typing import Literal

from engine.simulation.accelerators import Accelerator
from harness.assembly.reading import SettingsError, bounded

LONGEST_S = 10.0
"""Of delays: longer than the longest prefill of the paper's models; beyond it there is a slip of the finger."""
LARGEST_FACTOR = 1e6
SHORTEST_POLL_S = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedDeviceSettings:
    """The world a simulated point runs in (conf/device/*.yaml, group `simulation`).

    model: where times come from: roofline (the arithmetic of an `accelerator`), profile (measured), curve.
    profile: file of the measured times that the device runs on, operators included. Apart from device.profile, which
        the SLO speed factor and the policy's predictor are made of.
    curve: c0, c1, c2 of t(n) = c0 + c1 n + c2 n^2 in seconds, for whole prefills of n tokens.
    stretch: what SLOs and arrival gaps are stretched by: none (1: the paper's own device and model), profile (this
        device and model over the published curve, as for a measured machine), model (this model over llama3_8b on
        one accelerator, both on this device).
    predictor_error_cv: coefficient of variation of the policy's predictions around what the predictor says
        (log-normal, mean kept); the same work is mispredicted alike. Drawn by predictor_error_seed and load.seed.
    slowdown: with model=profile, what the measured times are multiplied by: a machine that is busier, or warmer, than
        when the profile was measured. The predictor is not told.
    kv_link_bytes_per_s, kv_link_delay_s: of the transport from a prefill to a decode instance: each hand-over has it
        to itself and takes the delay and its bytes. Needed by systems with instances of both.
    noise_seed: each load.seed has a noise of its own under it.
    The others: engine.simulation.settings.
    """

    model: Literal["roofline", "profile", "curve"]
    accelerator: Accelerator | None = None
    curve: tuple[float, ...] | None = None
    profile: str | None = None
    stretch: Literal["none", "profile", "model"] = "none"
    predictor_error_cv: float = bounded(default=0.0, at_least=0, at_most=2)
    predictor_error_seed: int = bounded(default=0, at_least=0)
    signal_delay_s: float = bounded(default=0.0, at_least=0, at_most=LONGEST_S)
    launch_ahead_s: float = bounded(default=0.0, at_least=0, at_most=LONGEST_S)
    switch_s: float = bounded(default=0.0, at_least=0, at_most=LONGEST_S)
    round_s: float = bounded(default=0.0, at_least=0, at_most=LONGEST_S)
    rounds: Literal["event", "poll", "operator"] = "event"
    poll_s: float = bounded(default=0.0, at_least=0, at_most=LONGEST_S)
    arrival_delay_s: float = bounded(default=0.0, at_least=0, at_most=LONGEST_S)
    kv_link_bytes_per_s: float | None = bounded(default=None, above=0)
    kv_link_delay_s: float = bounded(default=0.0, at_least=0, at_most=LONGEST_S)
    slowdown: float = bounded(default=1.0, at_least=1 / LARGEST_FACTOR, at_most=LARGEST_FACTOR)
    serial_rounds: bool = False
    noise_cv: float = bounded(default=0.0, at_least=0, at_most=2)
    noise_seed: int = bounded(default=0, at_least=0)

    def __post_init__(self) -> None:
        for model, name in (("roofline", "accelerator"), ("curve", "curve"), ("profile", "profile")):
            given = getattr(self, name) is not None
            if given != (self.model == model):
                state = "conflicts with" if given else "needs"
                raise SettingsError(f"device.simulation.model={self.model} {state} device.simulation.{name}")
        if self.curve is not None and (len(self.curve) != 3 or min(self.curve) < 0 or not any(self.curve)):
            raise SettingsError("device.simulation.curve must be three numbers, none below 0, not all 0")
        if self.slowdown != 1 and self.model != "profile":
            raise SettingsError(f"device.simulation.model={self.model} conflicts with device.simulation.slowdown")
        if (self.rounds == "poll") != (self.poll_s > 0):
            state = "needs" if self.rounds == "poll" else "conflicts with"
            raise SettingsError(f"device.simulation.rounds={self.rounds} {state} device.simulation.poll_s")
        if 0 < self.poll_s < SHORTEST_POLL_S:
            raise SettingsError(
                f"device.simulation.poll_s must be at least {SHORTEST_POLL_S:g} where it is not 0, got {self.poll_s:g}"
            )
        if self.serial_rounds and (self.rounds == "operator" or not self.round_s):
            raise SettingsError(
                "device.simulation.serial_rounds needs a round_s above 0 and rounds=event or rounds=poll; rounds before"
                " operators are one after another anyway"
            )
        if self.rounds == "operator" and self.model == "curve":
            raise SettingsError("device.simulation.rounds=operator conflicts with model=curve, which has no operators")
