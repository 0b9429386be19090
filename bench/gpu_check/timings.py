"""Part: times of prefills and operators as a profile file, and their speed against that of one large matrix product."""

import json
import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from bench.gpu_check.report import Report
from bench.gpu_check.scale import Setting
from bench.gpu_check.stage import Stage, prompt
from engine.torch_backend.models.decoder import Decoder
from engine.torch_backend.profiling import profile_of
from harness.experiments.fingerprint import slug
from harness.measurement.table_file import write_whole


def measure_timings(setting: Setting, report: Report, model: Decoder) -> Path:
    """Writes the profile below `out`, where it would lie in the repository; returns its path."""
    scale = setting.scale
    content = profile_of(model, scale.longest, scale.profile_rounds, scale.profile_lengths)
    machine = slug(f"{content['device']} {content['threads']} threads {content['dtype']}")
    path = setting.out / "profiles" / machine / f"{scale.model}.json"
    write_whole(path, (json.dumps(content, indent=1) + "\n").encode())
    for entry in content["operators"]:
        report.row("operators", **entry)
    report.number("operator times measured", len(content["operators"]))
    peak = matmul_flops_per_s(scale.matmul, model.device, model.dtype)
    report.number(f"matrix product of {scale.matmul}", peak / 1e12, "TFLOP/s")
    stage = Stage(model, scale.longest)
    for entry in content["prefill"]:
        if entry["context_tokens"] == 0:
            _speed(stage, report, entry, peak)
    return path


def _speed(stage: Stage, report: Report, entry: Mapping[str, Any], peak: float) -> None:
    tokens, seconds = entry["new_tokens"], entry["seconds"]
    program = stage.whole(prompt(tokens, stage.model.shape.vocab_size))
    stage.cache.free("r")
    rate = sum(operator.flops for operator in program.operators) / seconds
    report.row("prefill", tokens=tokens, seconds=seconds, flops_per_s=rate, share_of_matmul=rate / peak)
    report.number(f"prefill of {tokens} tokens: {1e3 * seconds:.4g} ms, share of that", rate / peak)


def matmul_flops_per_s(side: int, device: torch.device, dtype: torch.dtype, rounds: int = 20) -> float:
    """What the device does in the best case there is."""
    a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    times = []
    for _ in range(rounds):
        _wait(device)
        started_s = time.perf_counter()
        torch.mm(a, b)
        _wait(device)
        times.append(time.perf_counter() - started_s)
    return float(2 * side**3 / statistics.median(times[rounds // 4 :]))


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
