"""The settings of the experiment kind `real_servers`, below `servers` in its experiment file."""

from dataclasses import dataclass

from harness.assembly.reading import SettingsError, bounded


@dataclass(frozen=True, slots=True, kw_only=True)
class ServersSettings:
    """seeds, rates_of_capacity: of every system; 1 = as many requests per second as the server completes of a backlog.

    window_s: seconds of arrivals of a point. curve_tokens: prompt lengths, as sent, of the unloaded TTFT curve;
    curve_repeats: requests of each. backlog_requests: of a backlog: of the trace, of all its lengths alike.
    pilot_window_s, pilot_rate: of the pilot, with the first seed, that chooses between a system's chunk sizes.
    """

    seeds: tuple[int, ...]
    rates_of_capacity: tuple[float, ...]
    window_s: float = bounded(above=0)
    curve_tokens: tuple[int, ...]
    curve_repeats: int = bounded(at_least=1)
    backlog_requests: int = bounded(at_least=1)
    pilot_window_s: float = bounded(above=0)
    pilot_rate: float = bounded(above=0)

    def __post_init__(self) -> None:
        for name in ("seeds", "rates_of_capacity", "curve_tokens"):
            values = getattr(self, name)
            if not values or len(set(values)) < len(values):
                raise SettingsError(f"servers.{name} must be a list of different values, got {list(values)}")
        if min(self.seeds) < 0:
            raise SettingsError("servers.seeds must be at least 0")
        if min(self.rates_of_capacity) <= 0:
            raise SettingsError("servers.rates_of_capacity must be above 0")
        if len(self.curve_tokens) < 2 or min(self.curve_tokens) < 1:
            raise SettingsError("servers.curve_tokens must be two lengths or more, each at least 1")
