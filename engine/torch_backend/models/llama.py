"""Llama 3.x. Its scaled rotary frequencies are in `rope.py`; its operators are those that all decoders share."""

from engine.torch_backend.models.decoder import Decoder


class Llama(Decoder):
    """Nothing differs."""
