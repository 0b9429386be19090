"""Runs tasks on a model without an executor, and the same weights in transformers."""

from collections.abc import Sequence
from typing import Any

import torch

from engine.core.batch import Sequence as Share
from engine.core.batch import Task, TaskKind
from engine.model.catalogue import shape_folder
from engine.model.granularity import Granularity, TileSettings
from engine.model.segments import segments_of
from engine.torch_backend.gate import Gate
from engine.torch_backend.kv_cache import KVCache
from engine.torch_backend.models.decoder import Decoder
from engine.torch_backend.models.tensors import list_tensors
from engine.torch_backend.models.weight_sources import RandomWeights
from engine.torch_backend.program import Program, plan_program
from engine.torch_backend.sampling import SamplingSettings
from engine.torch_backend.task_state import build_state

SMALL_TILES = TileSettings(rows=7, pairs=60)


def prompt(length: int, seed: int = 1, vocabulary: int = 512) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(2, vocabulary, (length,), generator=generator).tolist()


def new_cache(model: Decoder, blocks: int = 64, block_tokens: int = 8) -> KVCache:
    cache = KVCache(model.shape, blocks, block_tokens, model.device, model.dtype)
    for tensor in (*cache.keys, *cache.values):
        tensor.zero_()
    return cache


def plan(
    model: Decoder,
    cache: KVCache,
    shares: Sequence[Share],
    tokens: dict[str, list[int]],
    granularity: Granularity = Granularity.OPERATOR,
    tiles: TileSettings = SMALL_TILES,
) -> Program:
    segments = segments_of(Task(1, TaskKind.PREFILL, tuple(shares)))
    ids = [t for s in shares for t in tokens[s.request_id][s.context_tokens : s.context_tokens + s.new_tokens]]
    state = build_state(model.shape, cache, model.rope, segments, ids)
    choices = [(SamplingSettings(), None) for s in shares if s.last]
    return plan_program(model, state, choices, granularity, tiles)


def logits_of(program: Program) -> torch.Tensor:
    with torch.inference_mode():
        assert program.run(Gate())
    assert program.state.logits is not None
    return program.state.logits.clone()


def hf_state(model: Decoder, seed: int = 0) -> dict[str, torch.Tensor]:
    source = RandomWeights(seed, torch.device("cpu"), torch.float32)
    return {spec.name: source.get(spec) for spec in list_tensors(model.shape)}


def hf_model(name: str, model: Decoder, **changes: Any) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig.from_pretrained(shape_folder(name), **changes)
    reference = LlamaForCausalLM(config).eval()
    missing, unexpected = reference.load_state_dict(hf_state(model), strict=False)
    assert not unexpected
    assert set(missing) <= {"lm_head.weight"}
    reference.tie_weights()
    return reference
