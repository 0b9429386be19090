"""Qwen3 mixture of experts: a router and experts instead of the dense MLP."""

from collections.abc import Mapping

from torch.nn.functional import rms_norm

from engine.torch_backend.models.decoder import RowKernel
from engine.torch_backend.models.experts import route, run_experts
from engine.torch_backend.models.qwen3 import Qwen3
from engine.torch_backend.models.weights import Experts
from engine.torch_backend.task_state import TaskState


class Qwen3Moe(Qwen3):
    """A task keeps the normed rows and each row's experts between the two operators."""

    def row_kernels(self) -> Mapping[str, RowKernel]:
        """Of the MLP half other ones."""
        return {"qkv_proj": self.qkv_proj, "o_proj": self.o_proj, "router": self.router, "experts": self.experts}

    def router(self, layer: int, state: TaskState, start: int, stop: int) -> None:
        """Norm, and the choice of experts."""
        shape, weights = self.shape, self._weights.layers[layer]
        assert isinstance(weights.mlp, Experts)
        for low, high in self._pieces(start, stop):
            normed = rms_norm(state.hidden[low:high], self._norm_size, weights.post_norm, shape.norm_eps)
            state.middle[low:high].copy_(normed)
            shares, chosen = route(normed, weights.mlp.router, shape.experts_per_token, shape.normalized_experts)
            state.expert_weights[low:high].copy_(shares)
            state.experts[low:high].copy_(chosen)

    def experts(self, layer: int, state: TaskState, start: int, stop: int) -> None:
        """What the chosen experts make of their rows, added to the residual stream."""
        experts = self._weights.layers[layer].mlp
        assert isinstance(experts, Experts)
        made = run_experts(
            state.middle[start:stop],
            state.expert_weights[start:stop],
            state.experts[start:stop],
            experts.gate_up,
            experts.down,
        )
        self.add_partial(state.hidden[start:stop], made)
