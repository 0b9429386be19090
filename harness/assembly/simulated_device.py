"""From a point's settings to the device model it runs on, and to the timings its predictor is fitted to."""

import dataclasses
from pathlib import Path

from engine.model.granularity import Granularity, TileSettings
from engine.serving.settings import SettingsError as EngineSettingsError
from engine.serving.timings import Timings, read_timings
from engine.simulation.device import DeviceModel
from engine.simulation.devices.curve import CurveDevice
from engine.simulation.devices.profiled import ProfiledDevice
from engine.simulation.devices.roofline import RooflineDevice
from harness.assembly.effective import EffectiveTokens
from harness.assembly.reading import SettingsError
from harness.assembly.settings import PointSettings
from harness.assembly.simulated import ELEMENT_BYTES, shape_of, simulation_of
from harness.assembly.simulated_timings import sampled_timings


def device_model(point: PointSettings) -> DeviceModel:
    """The true times of the point's tasks under its system. Raises SettingsError."""
    given, ranks = simulation_of(point), point.model.tensor_parallel or 1
    if given.model != "roofline" and ranks > 1:
        raise SettingsError(f"model.tensor_parallel needs a roofline device; device={point.device.name} is none")
    try:
        if given.curve is not None:
            return CurveDevice(given.curve[0], given.curve[1], given.curve[2])
        granularity, tiles = Granularity(point.system.granularity or "none"), _tiles(point)
        if given.accelerator is None:
            measured = _slower(_measured(point, given.profile), given.slowdown)
            return ProfiledDevice(shape_of(point), measured.operators, granularity, tiles, prefills=measured.prefills)
        return RooflineDevice(
            shape_of(point),
            given.accelerator,
            ranks,
            granularity,
            tiles,
            ELEMENT_BYTES[point.model.dtype],
            # Only FlowPrefill as released waits for its device at every half layer; a rival is never charged for it.
            half_layer_sync=point.system.preempt == "pause" and point.system.granularity != "none",
        )
    except ValueError as error:
        raise SettingsError(f"device={point.device.name}: {error}") from error


def unpaused_device(point: PointSettings) -> DeviceModel:
    """The same device under a system that never pauses: one for all systems."""
    system = dataclasses.replace(point.system, granularity="none", preempt="never", tile_tokens=None)
    return device_model(dataclasses.replace(point, system=system))


def predictor_timings(point: PointSettings, device: DeviceModel) -> Timings:
    """What the point's predictor is fitted to: the policy's own belief, apart from the device. Raises SettingsError.

    Where the device has a measured profile it is that one, as for the engine.
    """
    if point.device.profile is not None:
        return _measured(point, point.device.profile)
    try:
        return sampled_timings(
            device, shape_of(point).layers, EffectiveTokens.of(point).max_context_tokens, point.model.length_scale
        )
    except ValueError as error:
        raise SettingsError(f"device={point.device.name}: {error}") from error


def _measured(point: PointSettings, profile: str | None) -> Timings:
    assert profile is not None  # both are there where device.simulation.model is profile
    try:
        return read_timings(Path(profile), shape_of(point).layers)
    except EngineSettingsError as error:
        raise SettingsError(f"device={point.device.name}: {error}") from error


def _slower(measured: Timings, slowdown: float) -> Timings:
    return dataclasses.replace(
        measured,
        prefills=tuple(dataclasses.replace(one, seconds=one.seconds * slowdown) for one in measured.prefills),
        operators=tuple(dataclasses.replace(one, seconds=one.seconds * slowdown) for one in measured.operators),
    )


def _tiles(point: PointSettings) -> TileSettings | None:
    rows = EffectiveTokens.of(point).tile_tokens
    return None if rows is None else TileSettings(rows=rows, pairs=rows**2)
