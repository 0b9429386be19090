"""Rotary position embedding tables (half-rotation convention: dimension i pairs with i + head_dim/2)."""

import math

import torch

from engine.model.shape import ModelShape, RopeScaling


def rope_tables(shape: ModelShape, device: torch.device, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of every position: two tensors [max_positions, 1, head_dim / 2]."""
    exponent = torch.arange(0, shape.head_dim, 2, dtype=torch.float32, device=device) / shape.head_dim
    frequency = 1.0 / (shape.rope_theta**exponent)
    if shape.rope_scaling is not None:
        frequency = _scaled(frequency, shape.rope_scaling)
    angle = torch.outer(torch.arange(shape.max_positions, dtype=torch.float32, device=device), frequency)
    return angle.cos().to(dtype).unsqueeze(1), angle.sin().to(dtype).unsqueeze(1)


def _scaled(frequency: torch.Tensor, scaling: RopeScaling) -> torch.Tensor:
    """Slow frequencies divided by the factor, fast ones kept, those between blended (Llama 3.1)."""
    wavelength = 2 * math.pi / frequency
    turns = scaling.original_max_positions / wavelength
    keep = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    keep = keep.clamp(0.0, 1.0)
    return frequency * keep + frequency / scaling.factor * (1 - keep)


def rotate_into(source: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, target: torch.Tensor) -> None:
    """Write the rotated `source` [rows, heads, head_dim] to `target` of the same shape (they must not overlap)."""
    first, second = source.chunk(2, dim=-1)
    target_first, target_second = target.chunk(2, dim=-1)
    torch.mul(first, cos, out=target_first).addcmul_(second, sin, value=-1)
    torch.mul(second, cos, out=target_second).addcmul_(first, sin)
