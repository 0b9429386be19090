"""Qwen2 and Qwen2.5: a bias in the q, k and v projections, which their matrix adds. A config may say there is none."""

from engine.torch_backend.models.decoder import Decoder


class Qwen2(Decoder):
    """Nothing else differs."""
