"""Part: every architecture computes what transformers computes, whole, in chunks and in a batch."""

from collections.abc import Sequence
from typing import Any

import torch

from bench.gpu_check.families import transformers_model, write_families
from bench.gpu_check.report import Report
from bench.gpu_check.scale import Setting
from bench.gpu_check.stage import Stage, prompt
from engine.core.batch import Sequence as Share
from engine.torch_backend.models.catalogue import load_model

PROMPTS = {f"p{i}": prompt(5 + 4 * i, 512, seed=i) for i in range(24)}
FLOAT32_ERROR = 1e-4
BFLOAT16_ERROR = 1.25
BFLOAT16_SAME_TOKEN = 0.1
"""By how much the share of prompts with the greedy token of float32 may lie below theirs."""


def check_parity(setting: Setting, report: Report) -> None:
    device = setting.scale.device
    for name, folder in write_families(setting.scratch):
        reference = transformers_model(folder, device, torch.float32)
        exact = _theirs(reference)
        stage = Stage(load_model(str(folder), device, "float32"), 2048)
        for way, ours in (("whole", _whole(stage)), ("chunks", _chunks(stage)), ("batch", _batch(stage))):
            error = float((ours - exact).abs().max() / exact.abs().max())
            report.row(
                "parity", family=name, dtype="float32", way=way, error=error, kernel=stage.model.attention_kernel.name
            )
            report.must(f"{name} float32 {way}: largest error", error <= FLOAT32_ERROR, f"<= {FLOAT32_ERROR:g}", error)
        rounded = Stage(load_model(str(folder), device, "bfloat16"), 2048)
        ours, theirs = _batch(rounded), _theirs(transformers_model(folder, device, torch.bfloat16))
        ratio = _error(ours, exact) / _error(theirs, exact)
        same, theirs_same = (float((logits.argmax(1) == exact.argmax(1)).float().mean()) for logits in (ours, theirs))
        kernel = rounded.model.attention_kernel.name
        report.row("parity", family=name, dtype="bfloat16", way="batch", error=_error(ours, exact), kernel=kernel)
        limit = f"<= {BFLOAT16_ERROR:g}"
        report.must(f"{name} bfloat16 ({kernel}): error over theirs", ratio <= BFLOAT16_ERROR, limit, ratio)
        least = theirs_same - BFLOAT16_SAME_TOKEN
        report.must(
            f"{name} bfloat16: same greedy token as float32", same >= least, f">= {least:.3g} (theirs - 0.1)", same
        )


def _theirs(reference: Any) -> torch.Tensor:
    device = reference.device
    rows = [reference(torch.tensor([ids], device=device)).logits[0, -1].float() for ids in PROMPTS.values()]
    return torch.stack(rows)


def _whole(stage: Stage) -> torch.Tensor:
    return torch.cat([_after(stage, name, [Share(name, 0, len(ids))]) for name, ids in PROMPTS.items()])


def _chunks(stage: Stage) -> torch.Tensor:
    found = []
    for name, ids in PROMPTS.items():
        half = len(ids) // 2
        first = Share(name, 0, half, last=False)
        found.append(_after(stage, name, [first, Share(name, half, len(ids) - half)]))
    return torch.cat(found)


def _after(stage: Stage, name: str, tasks: Sequence[Share]) -> torch.Tensor:
    """The logits after the last of a request's tasks, one after the other."""
    for share in tasks[:-1]:
        stage.run(stage.program([share], PROMPTS))
    logits = stage.logits(stage.program([tasks[-1]], PROMPTS))
    stage.cache.free(name)
    return logits


def _batch(stage: Stage) -> torch.Tensor:
    logits = stage.logits(stage.program([Share(name, 0, len(ids)) for name, ids in PROMPTS.items()], PROMPTS))
    for name in PROMPTS:
        stage.cache.free(name)
    return logits


def _error(logits: torch.Tensor, exact: torch.Tensor) -> float:
    """Median over prompts: rounding may send a row to another expert, where two are as likely."""
    return float(((logits - exact).norm(dim=1) / exact.norm(dim=1)).median())
