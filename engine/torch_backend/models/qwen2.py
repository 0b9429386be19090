"""Qwen2 and Qwen2.5: a bias in the q, k and v projections."""

import torch

from engine.torch_backend.models.decoder import Decoder
from engine.torch_backend.models.weights import LayerWeights


class Qwen2(Decoder):
    """The projection adds its bias. A config may say that there is none."""

    def project(self, weights: LayerWeights, normed: torch.Tensor) -> torch.Tensor:
        """As a decoder's, with the bias [(heads + 2 x kv_heads) x head_dim]."""
        if weights.qkv_bias is None:
            return super().project(weights, normed)
        return torch.addmm(weights.qkv_bias, normed, weights.qkv.t())
