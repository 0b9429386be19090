"""Part: a prefill paused, with another one run meanwhile, and resumed gives the same bits as one that is not."""

import random
from collections.abc import Sequence

import torch

from bench.gpu_check.families import write_families
from bench.gpu_check.report import Report
from bench.gpu_check.scale import Setting
from bench.gpu_check.stage import Stage, prompt
from engine.model.granularity import Granularity, TileSettings
from engine.torch_backend.gate import Gate
from engine.torch_backend.models.catalogue import load_model
from engine.torch_backend.models.decoder import Decoder

TINY_TOKENS = 70
SMALL_TILES = TileSettings(rows=32, pairs=900)


def check_pausing(setting: Setting, report: Report, model: Decoder) -> None:
    scale = setting.scale
    small_dtype = "bfloat16" if scale.device == "cuda" else "float32"
    for name, folder in write_families(setting.scratch):
        small = load_model(str(folder), scale.device, small_dtype)
        for granularity in (Granularity.OPERATOR, Granularity.TILE):
            stage = Stage(small, 2 * TINY_TOKENS + 32, granularity, SMALL_TILES)
            ids = prompt(TINY_TOKENS, 512)
            every = range(len(stage.whole(ids, "counted").operators))
            stage.cache.free("counted")
            _judge(report, f"{name} {granularity}, every boundary", stage, ids, every)
    stage = Stage(model, 2 * scale.pause_tokens + 32)
    ids = prompt(scale.pause_tokens, model.shape.vocab_size)
    count = len(stage.whole(ids, "counted").operators)
    stage.cache.free("counted")
    some = sorted(random.Random(0).sample(range(count), min(scale.boundaries, count)))
    _judge(report, f"{scale.model} at {scale.pause_tokens} tokens, random boundaries", stage, ids, some)


def _judge(report: Report, what: str, stage: Stage, ids: Sequence[int], boundaries: Sequence[int]) -> None:
    wanted = _outcome(stage, ids, None)
    differing = [index for index in boundaries if not _same(_outcome(stage, ids, index), wanted)]
    for index in boundaries:
        report.row("pausing", what=what, boundary=index, identical=index not in differing)
    report.must(f"{what}: {len(boundaries)} pauses that change a bit", not differing, "0", len(differing))


def _outcome(stage: Stage, ids: Sequence[int], stop_index: int | None) -> list[torch.Tensor]:
    """Logits and the keys and values written; stop_index: paused there, None = never."""
    program, gate = stage.whole(ids), Gate()
    if stop_index is not None:
        gate.stop_at(stop_index, now_ns=0)
        if stage.run(program, gate) or program.cursor != stop_index:
            raise AssertionError(f"asked to stop at operator {stop_index}, it went on to {program.cursor}")
        stage.run(stage.whole(ids[: len(ids) // 2 + 1], "other"))
        stage.cache.free("other")
        gate.open()
    if not stage.run(program, gate):
        raise AssertionError("it stopped though nobody asked")
    assert program.state.logits is not None
    kept = [program.state.logits.clone()]
    for layer in range(stage.model.shape.layers):
        kept += [part.clone() for part in stage.cache.read(layer, "r", len(ids))]
    stage.cache.free("r")
    return kept


def _same(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
