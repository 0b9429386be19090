"""Qwen3: queries and keys are normed head by head before they are rotated."""

import torch
from torch.nn.functional import rms_norm

from engine.torch_backend.models.decoder import Decoder
from engine.torch_backend.models.weights import LayerWeights


class Qwen3(Decoder):
    """Two more norms of size head_dim a layer."""

    def norm_heads(self, weights: LayerWeights, q: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Each head's vector is normed; all query heads share one weight, all key heads another."""
        size = (self.shape.head_dim,)
        q = rms_norm(q, size, weights.q_norm, self.shape.norm_eps)
        return q, rms_norm(k, size, weights.k_norm, self.shape.norm_eps)
