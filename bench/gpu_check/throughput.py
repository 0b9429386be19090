"""Part: prefills with checks against without, and against transformers, one right after the other."""

from collections.abc import Callable
from typing import Any

import torch

from bench.gpu_check.report import Report
from bench.gpu_check.scale import Setting
from bench.gpu_check.stage import Stage, prompt
from bench.paired_ratio import interleaved_pairs, median_ratio, medians_ms
from engine.model.catalogue import shape_folder
from engine.model.granularity import Granularity
from engine.torch_backend.gate import Gate
from engine.torch_backend.models.decoder import Decoder

KEPT = 0.99
FASTER = 1.1
TRANSFORMERS_ATTENTION = "sdpa"


def measure_checks(setting: Setting, report: Report, model: Decoder) -> None:
    """A check at every operator and a bounded launch, against launches without any check or bound."""
    scale = setting.scale
    checked, free = (
        Stage(model, max(scale.overhead_lengths)),
        Stage(model, max(scale.overhead_lengths), Granularity.NONE),
    )
    for tokens in scale.overhead_lengths:
        ids = prompt(tokens, model.shape.vocab_size)
        pairs = interleaved_pairs(_prefill(checked, ids), _prefill(free, ids, bounded=False), scale.pairs)
        ratio, low, high = median_ratio(pairs)
        with_ms, without_ms = medians_ms(pairs)
        report.row("checks", tokens=tokens, with_ms=with_ms, without_ms=without_ms, ratio=ratio, low=low, high=high)
        what = f"{tokens} tokens, with checks / without ({ratio:.4f}), lower end"
        report.speed(what, low, "x", f">= {KEPT}", low >= KEPT)


def compare_transformers(setting: Setting, report: Report, model: Decoder) -> None:
    """The same shapes, number format and device; both give the last row's logits and fill a KV cache."""
    scale = setting.scale
    stage, theirs = Stage(model, max(scale.compared_lengths)), _random_transformers(setting, model)
    for tokens in scale.compared_lengths:
        ids = prompt(tokens, model.shape.vocab_size)
        pairs = interleaved_pairs(_prefill(stage, ids), _their_prefill(theirs, ids), scale.pairs)
        ratio, low, high = median_ratio(pairs)
        our_ms, their_ms = medians_ms(pairs)
        report.row("transformers", tokens=tokens, our_ms=our_ms, their_ms=their_ms, ratio=ratio, low=low, high=high)
        what = f"{tokens} tokens, {1e3 * tokens / our_ms:.4g} tokens/s against transformers"
        report.speed(what, ratio, "x", f">= {FASTER}", ratio >= FASTER)


def _prefill(stage: Stage, ids: list[int], bounded: bool = True) -> Callable[[], None]:
    """A whole prefill, planned and read back as the executor does. bounded: through the launch window."""

    def run() -> None:
        program = stage.whole(ids)
        if bounded:
            stage.run(program)
        else:
            program.run(Gate())
        assert program.state.sampled is not None
        program.state.sampled.tolist()
        stage.cache.free("r")

    return run


def _their_prefill(model: Any, ids: list[int]) -> Callable[[], None]:
    def run() -> None:
        rows = torch.tensor([ids], device=model.device)
        model(rows, use_cache=True, logits_to_keep=1).logits[0, -1].argmax().item()

    return run


def _random_transformers(setting: Setting, model: Decoder) -> Any:
    """Their model of the same config, its weights drawn on the device: time does not depend on their values."""
    from transformers import AutoConfig, AutoModelForCausalLM

    make: Any = AutoModelForCausalLM.from_config
    config = AutoConfig.from_pretrained(shape_folder(setting.scale.model))
    with torch.device(model.device):
        reference = make(config, dtype=model.dtype, attn_implementation=TRANSFORMERS_ATTENTION)
    return reference.eval()
