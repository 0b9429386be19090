"""The KV pool of a simulated accelerator: the memory its model's weights leave."""

import dataclasses

from engine.simulation.kv_pool import kv_pool_tokens
from harness.assembly.effective import EffectiveTokens
from harness.assembly.reading import SettingsError
from harness.assembly.settings import PointSettings
from harness.assembly.simulated import ELEMENT_BYTES, shape_of


def with_kv_pool(point: PointSettings) -> PointSettings:
    """The point with model.kv_tokens from the memory left (`model.kv_tokens=null`). Raises SettingsError."""
    pool = _pool_tokens(point)
    if pool is None:
        raise SettingsError(
            f"model.kv_tokens=null takes the KV pool from the memory of a simulated accelerator, and"
            f" device={point.device.name} is none: give a number of trace tokens"
        )
    tokens = int(pool / point.model.length_scale)
    return dataclasses.replace(point, model=dataclasses.replace(point.model, kv_tokens=tokens))


def check_memory(point: PointSettings) -> None:
    """Raise SettingsError where the weights, or the KV asked for beside them, do not fit a simulated accelerator."""
    pool, model = _pool_tokens(point), point.model
    if pool is None:
        return
    asked = -(-EffectiveTokens.of(point).kv_tokens // model.block_tokens) * model.block_tokens
    if asked > pool:
        raise SettingsError(
            f"model.kv_tokens={model.kv_tokens} does not fit device={point.device.name}: {model.name} leaves memory for"
            f" {int(pool / model.length_scale)} (model.kv_tokens=null takes them all)"
        )


def _pool_tokens(point: PointSettings) -> int | None:
    """Tokens as sent; None for a device whose memory is not known."""
    simulation, model = point.device.simulation, point.model
    if simulation is None or simulation.accelerator is None:
        return None
    try:
        return kv_pool_tokens(
            shape_of(point),
            simulation.accelerator,
            model.tensor_parallel or 1,
            ELEMENT_BYTES[model.dtype],
            model.block_tokens,
        )
    except ValueError as error:
        raise SettingsError(f"device={point.device.name}: {error}") from error
