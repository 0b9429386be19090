"""Settings of the proxy in front of prefill and decode instances."""

from dataclasses import dataclass

from engine.scheduling.routing.catalogue import ROUTERS
from engine.serving.settings import SettingsError, setting


@dataclass(frozen=True, slots=True)
class ProxySettings:
    """How many instances there are, and who gets which request. The instances share the engine's settings."""

    prefill_instances: int = setting(1, "engine processes that prefill", least=1, most=64)
    decode_instances: int = setting(1, "engine processes that decode", least=1, most=64)
    routing: str = setting("round_robin", f"which prefill instance gets a request: {', '.join(ROUTERS)}")
    max_waiting_for_decode: int = setting(
        256, "requests that wait for room on a decode instance beyond which new ones get a 503", least=1
    )


def check(settings: ProxySettings) -> None:
    """Raise SettingsError for a routing that is not known."""
    if settings.routing not in ROUTERS:
        raise SettingsError(f"--routing: there is no {settings.routing!r}; choose from {', '.join(ROUTERS)}")
