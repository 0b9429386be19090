"""The names a user can choose from, and what each stands for."""

from collections.abc import Mapping
from typing import Final

from engine.serving.settings import EngineSettings, SettingsError

CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "policy": ("s_edf", "edf", "fcfs", "srpt"),
    "batching": ("none", "slo_aware", "token_limited", "chunked"),
    "preempt": ("never", "pause", "restart"),
    "predictor": ("polynomial",),
    "granularity": ("none", "layer", "half_layer", "operator", "tile"),
    "batch_deadline": ("head", "earliest_live"),
    "device": ("auto", "cpu", "cuda"),
    "dtype": ("auto", "float32", "bfloat16", "float16"),
}


def check(settings: EngineSettings) -> None:
    """Raise SettingsError for a name that is not in the tables, listing those that are."""
    for name, known in CHOICES.items():
        value = getattr(settings, name)
        if value not in known:
            flag = "--" + name.replace("_", "-")
            raise SettingsError(f"{flag}: there is no {value!r}; choose from {', '.join(known)}")
