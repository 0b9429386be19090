"""Tasks on a model without an executor, run exactly as the executor runs them: through the gate and its window."""

from collections.abc import Mapping, Sequence

import torch

from engine.core.batch import Sequence as Share
from engine.core.batch import Task, TaskKind
from engine.model.granularity import Granularity, TileSettings
from engine.model.segments import segments_of
from engine.torch_backend.gate import Gate
from engine.torch_backend.kv_cache import KVCache
from engine.torch_backend.models.decoder import Decoder
from engine.torch_backend.operator_times import OperatorTimes
from engine.torch_backend.peers import Nobody
from engine.torch_backend.program import Program, plan_program
from engine.torch_backend.sampling import SamplingSettings
from engine.torch_backend.settings import ExecutorSettings, new_window
from engine.torch_backend.task_state import build_state

BLOCK_TOKENS = 16


def prompt(length: int, vocabulary: int, seed: int = 0) -> list[int]:
    """Token ids by seed."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(2, vocabulary, (length,), generator=generator).tolist()


class Stage:
    """One model and its KV cache. `run` it inside `torch.inference_mode()`."""

    def __init__(
        self,
        model: Decoder,
        tokens: int,
        granularity: Granularity = Granularity.OPERATOR,
        tiles: TileSettings | None = None,
        launch_bound_ns: int = 500_000,
    ) -> None:
        """tokens: positions of the cache."""
        self.model = model
        self._settings = ExecutorSettings(granularity, tiles or TileSettings(), launch_bound_ns=launch_bound_ns)
        self._times = OperatorTimes(self._settings.device_flops_per_s)
        self.cache = KVCache(model.shape, -(-tokens // BLOCK_TOKENS), BLOCK_TOKENS, model.device, model.dtype)
        for tensor in (*self.cache.keys, *self.cache.values):
            tensor.zero_()

    def program(self, shares: Sequence[Share], ids: Mapping[str, Sequence[int]]) -> Program:
        """A task's program. ids: each request's whole prompt. KV is allocated for requests that hold none."""
        for share in shares:
            if share.request_id not in self.cache.holders:
                self.cache.allocate(share.request_id, len(ids[share.request_id]))
        segments = segments_of(Task(0, TaskKind.PREFILL, tuple(shares)))
        rows = [i for s in shares for i in ids[s.request_id][s.context_tokens : s.context_tokens + s.new_tokens]]
        state = build_state(self.model.shape, self.cache, self.model.rope, segments, rows)
        choices = [(SamplingSettings(), None) for share in shares if share.last]
        return plan_program(self.model, state, choices, self._settings.granularity, self._settings.tiles)

    def whole(self, ids: Sequence[int], request_id: str = "r") -> Program:
        """One prompt as one task."""
        return self.program([Share(request_id, 0, len(ids))], {request_id: ids})

    def run(self, program: Program, gate: Gate | None = None) -> bool:
        """Go on to the end (True) or to where the gate stops it (False)."""
        window = new_window(self.model.device, self._settings, self._times)
        return Nobody().run(0, program, gate or Gate(), window, self._times.predicted_ns)

    def logits(self, program: Program) -> torch.Tensor:
        """Run to the end; float32 [sequences that end their prompt, vocabulary]."""
        self.run(program)
        assert program.state.logits is not None
        return program.state.logits.clone()
