"""Clairvoyant bounds of an experiment's simulated points, in `bounds.jsonl.gz`: one for all systems under one load.

A line is known by its key and by the largest batch it holds for.
"""

import gzip
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.experiments.locks import locked
from harness.experiments.simulated_store import DIGITS
from harness.measurement.bound import Bound
from harness.measurement.store import StoreError
from harness.measurement.table_file import write_whole

BOUNDS = "bounds.jsonl.gz"
WORLD = ("model", "accelerator", "curve")
"""Settings of a simulated device that a bound depends on; what else it has can only cost time."""


def bound_key(settings: Mapping[str, Any]) -> str:
    """Of a point's requests and the devices that prefill them, whatever else its system is. settings: as recorded."""
    workload = {name: value for name, value in settings["workload"].items() if name != "path"}
    content = {
        "workload": workload,
        "slo": settings["slo"],
        "slo_scale": settings["slo_scale"],
        "rate_scale": settings["load"]["rate_scale"],
        "seed": settings["load"]["seed"],
        "min_arrivals_s": settings["protocol"]["min_arrivals_s"],
        "model": settings["model"],
        "device": {name: settings["device"]["simulation"][name] for name in WORLD},
        "input": settings["input"],
    }
    if (servers := settings["system"].get("prefill_instances") or 1) > 1:
        content["servers"] = servers
    if (discard_first_s := settings["protocol"].get("discard_first_s")) is not None:
        content["discard_first_s"] = discard_first_s
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def read_bounds(folder: Path, batch_tokens: int | None = None) -> dict[str, Bound]:
    """By key. batch_tokens: those for such batches only (trace tokens); None = of each key that for the largest ones,
    which holds for every system. Raises StoreError for a damaged file."""
    chosen = [line for line in _lines(folder) if batch_tokens in (None, line["batch_tokens"])]
    chosen.sort(key=lambda line: line["batch_tokens"])
    return {line["key"]: Bound(line["overall"], line["worst_class"]) for line in chosen}


def add_bounds(folder: Path, bounds: Mapping[str, Bound], batch_tokens: int) -> None:
    """Keep bounds, replacing those of the same key and batch_tokens."""
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        kept = {(line["key"], line["batch_tokens"]): line for line in _lines(folder)}
        for key, bound in bounds.items():
            shares = {"overall": _rounded(bound.overall), "worst_class": _rounded(bound.worst_class)}
            kept[key, batch_tokens] = {"key": key, "batch_tokens": batch_tokens, **shares}
        text = "".join(json.dumps(line, sort_keys=True) + "\n" for _, line in sorted(kept.items()))
        write_whole(folder / BOUNDS, gzip.compress(text.encode(), mtime=0))


def _lines(folder: Path) -> list[dict[str, Any]]:
    path = folder / BOUNDS
    if not path.is_file():
        return []
    try:
        lines = [json.loads(line) for line in gzip.decompress(path.read_bytes()).decode().splitlines()]
        if not all({"key", "batch_tokens", "overall", "worst_class"} <= set(line) for line in lines):
            raise ValueError("a line lacks a value")
    except (OSError, EOFError, ValueError, TypeError) as error:
        raise StoreError(f"{path} is damaged ({error}): remove it, and its bounds are solved anew") from error
    return lines


def _rounded(share: float | None) -> float | None:
    return None if share is None else float(f"{share:.{DIGITS}g}")
