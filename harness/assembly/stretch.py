"""What a simulated point's SLOs and arrival gaps are stretched by, so that another device or model is asked the same.

The published SLOs belong to llama3_8b on one A800. Under `profile` they are stretched by how much longer the window's
prefills take here than on the published curve, as for a measured machine. Under `model` by how much longer they take
than llama3_8b on one accelerator of the same device: 1 for that model, so that a calibration's own error does not
move the SLOs of the paper's set-up.
"""

import dataclasses
from collections.abc import Callable

from harness.assembly.reading import SettingsError
from harness.assembly.requests import LoadedTrace, speed_factor
from harness.assembly.settings import PointSettings
from harness.assembly.simulated import simulation_of
from harness.assembly.simulated_device import unpaused_device
from harness.assembly.simulated_timings import prefill_seconds

REFERENCE_MODEL = "llama3_8b"


def stretch_factor(point: PointSettings, loaded: LoadedTrace) -> float:
    """1 where the settings say none. Raises SettingsError."""
    stretch = simulation_of(point).stretch
    if stretch == "none":
        return 1.0
    try:
        here = speed_factor(point, loaded, _seconds_of(point))
        if stretch == "profile":
            return here
        return here / speed_factor(point, loaded, _seconds_of(_with_reference_model(point)))
    except ValueError as error:
        raise SettingsError(f"device.simulation.stretch={stretch}: {error}") from error


def _seconds_of(point: PointSettings) -> Callable[[int], float]:
    device = unpaused_device(point)
    known: dict[int, float] = {}

    def seconds(tokens: int) -> float:
        if tokens not in known:
            known[tokens] = prefill_seconds(device, tokens)
        return known[tokens]

    return seconds


def _with_reference_model(point: PointSettings) -> PointSettings:
    if simulation_of(point).model != "roofline":
        raise SettingsError("device.simulation.stretch=model needs device.simulation.model=roofline")
    model = dataclasses.replace(point.model, checkpoint=REFERENCE_MODEL, tensor_parallel=None)
    return dataclasses.replace(point, model=model)
