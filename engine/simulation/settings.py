"""What the world around the device is like."""

import math
from dataclasses import dataclass
from typing import Final, Literal

Rounds = Literal["event", "poll", "operator"]
ROUNDS: Final[tuple[Rounds, ...]] = ("event", "poll", "operator")


@dataclass(frozen=True, slots=True)
class SimulationSettings:
    """Delays, the rhythm of scheduling rounds, and the disturbance of operator times.

    signal_delay_s: from the moment a pause takes effect on the host until the device's side has heard of it.
    launch_ahead_s: work already launched when a pause is heard; it runs on.
    switch_s: device time lost when an unfinished task is paused; Preempted comes after it. No work is done in it.
    round_s: host time of a scheduling round. Start, Resume and Pause take effect, and tokens reach clients, that
        much later.
    serial_rounds: what happens during a round waits for the next one: the host has one thread to decide on. Else
        rounds that close on one another overlap, each as if the host were idle.
    rounds: event: a round as soon as something happens. poll: events are seen at multiples of `poll_s` only.
        operator: a round before every operator of the executing task, on the device's path: each operator takes
        `round_s` longer, and what happens is seen before the next operator.
    arrival_delay_s: from the instant a request is due until the engine has it: client, network, HTTP. The engine counts
        the SLO from there, the client from the due instant.
    noise_cv: coefficient of variation of each operator's time (log-normal, mean kept), drawn anew for every task.
    """

    signal_delay_s: float = 0.0
    launch_ahead_s: float = 0.0
    switch_s: float = 0.0
    round_s: float = 0.0
    rounds: Rounds = "event"
    poll_s: float = 0.0
    serial_rounds: bool = False
    arrival_delay_s: float = 0.0
    noise_cv: float = 0.0
    noise_seed: int = 0

    def __post_init__(self) -> None:
        durations = ("signal_delay_s", "launch_ahead_s", "switch_s", "round_s", "poll_s", "arrival_delay_s")
        for name in (*durations, "noise_cv"):
            value = getattr(self, name)
            if not (value >= 0 and math.isfinite(value)):
                raise ValueError(f"{name} must be 0 or more, got {value}")
        if self.rounds not in ROUNDS:
            raise ValueError(f"rounds must be one of {', '.join(ROUNDS)}, got {self.rounds!r}")
        if self.rounds == "poll" and self.poll_s < 1e-9:
            raise ValueError(f"rounds = poll needs poll_s of at least 1e-9 s, got {self.poll_s}")
        if self.noise_seed < 0:
            raise ValueError(f"noise_seed must be 0 or more, got {self.noise_seed}")
