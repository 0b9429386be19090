"""The tables of `real_servers`, made up: two rivals at two chunk sizes, one that was not run."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from engine.core.record import ClientReport
from harness.measurement.table_file import write_table
from harness.measurement.tables import PointFacts, point_row, write_points
from harness.measurement.verdict import Judgement, Verdict
from tests.figures.synthetic_results import FACTS, S, records

SERVERS = {  # series: system, policy, chunk sizes (the chosen one first), capacity, carries, milliseconds per token
    "FlowPrefill (operator)": ("flowprefill", "s_edf", (None,), 22.0, 1.15, 0.10),
    "DistServe (FCFS)": ("distserve", "fcfs", (None,), 22.0, 0.35, 0.10),
    "vLLM (FCFS)": ("vllm", "fcfs", (2048, 8192), 15.0, 0.5, 0.15),
    "vLLM (priority)": ("vllm_priority", "priority", (2048, 8192), 15.0, 0.85, 0.15),
    "SGLang (priority)": ("sglang_priority", "priority", (8192, 2048), 11.0, 0.7, 0.21),
}
PLUGIN_SERVERS = {
    "FlowPrefill (operator)": ("flowprefill", "s_edf", (None,), 22.0, 1.15, 0.10),
    "vLLM (FCFS)": ("vllm", "fcfs", (2048,), 15.0, 0.5, 0.15),
    "vLLM (priority)": ("vllm_priority", "priority", (2048,), 15.0, 0.85, 0.15),
    "vLLM + S-EDF (chunk)": ("vllm_flowprefill_chunk", "fcfs", (2048,), 15.0, 0.95, 0.15),
    "vLLM + FlowPrefill (layer)": ("vllm_flowprefill_layer", "fcfs", (2048,), 15.0, 1.05, 0.15),
    "vLLM + FlowPrefill (operator)": ("vllm_flowprefill", "fcfs", (2048,), 15.0, 1.1, 0.15),
}
ABSENT = ("SGLang (FCFS)", "sglang", "not run: there is no .venv-sglang: run `make env-sglang` first")
REFERENCE = "FlowPrefill (operator)"


def write_real_servers(
    root: Path,
    experiment: str = "real_servers",
    shares: Sequence[float] = (0.6, 0.8, 1.0),
    seeds: int = 3,
    requests: int = 200,
    invalid: tuple[str, float] | None = ("vLLM (FCFS)", 1.0),
    of: Mapping[str, tuple[str, str, tuple[int | None, ...], float, float, float]] = SERVERS,
) -> None:
    """All four tables. invalid: series and share whose points were judged unfit, as a client too slow makes them."""
    rows, servers, ttft, differences = [], [], [], []
    for series, (system, policy, sizes, capacity, carries, ms) in of.items():
        for chunk in sizes:
            chosen = chunk == sizes[0]
            servers.append(
                {
                    "system": system, "series": series, "policy": policy, "chunk_tokens": chunk,
                    "capacity_rps": capacity, "capacity_tokens_per_s": 200 * capacity, "slo_speed_factor": 5 * ms,
                    "chosen": chosen, "not_run": None,
                }
            )  # fmt: skip
            ttft += [
                {
                    "system": system, "series": series, "chunk_tokens": chunk, "prompt_tokens": tokens,
                    "repeat": repeat, "ttft_s": (2 + ms * tokens) * (1 + 0.1 * repeat) / 1000,
                }
                for tokens in (16, 64, 256, 512, 1024, 2048, 4096)
                for repeat in range(3)
            ]  # fmt: skip
            facts = replace(
                FACTS, experiment=experiment, series=series, system=system, policy=policy, chunk_tokens=chunk,
                slo_speed_factor=5 * ms,
            )  # fmt: skip
            runs = [(share, seed, False) for share in shares for seed in range(seeds)] if chosen else []
            if len(sizes) > 1:
                runs.append((0.8, 0, True))
            for share, seed, pilot in runs:
                bad = invalid == (series, share)
                rows += _points(facts, share, seed, pilot, capacity, carries, requests, bad)
        if series != REFERENCE:
            differences += _differences(series, sizes[0], shares, carries)
    series, system, reason = ABSENT
    servers.append(
        {"system": system, "series": series, "policy": "fcfs", "chunk_tokens": 2048, "chosen": False, "not_run": reason}
    )
    write_points(root / "tables" / f"{experiment}.csv", rows)
    for name, table in (("servers", servers), ("ttft", ttft), ("differences", differences)):
        write_table(root / "tables" / f"{experiment}_{name}.csv", table)


def write_plugin(root: Path, **named: int) -> None:
    """The tables of `vllm_plugin`, and of its bench."""
    write_real_servers(root, "vllm_plugin", of=PLUGIN_SERVERS, **named)
    waits = {"operator": 0.03, "half_layer": 0.05, "layer": 0.09, "chunk": 0.4}
    kept = {("prefill throughput kept", 512): 0.99, ("decode throughput kept", 256): 1.0}
    bench = [("blocking", name, 8192, value) for name, value in waits.items()]
    bench += [(measure, f"{name} / none", tokens, value) for (measure, tokens), value in kept.items()
              for name in ("operator", "stock")]  # fmt: skip
    rows = [
        {
            "measure": measure, "server": server, "tokens": tokens, "n": 40, "value": value, "low": 0.9 * value,
            "high": 1.1 * value, "largest": 2 * value, "unit": "s",
        }
        for measure, server, tokens, value in bench
    ]  # fmt: skip
    write_table(root / "tables" / "vllm_plugin_bench.csv", rows)


def _points(
    facts: PointFacts, share: float, seed: int, pilot: bool, capacity: float, carries: float, requests: int, bad: bool
) -> list[dict[str, object]]:
    place = {"pilot": pilot, "rate_of_capacity": share, "capacity_rps": capacity}
    verdict = Judgement(Verdict.CLIENT_BOUND if bad else Verdict.VALID, ())
    found = []
    for panel, factor in (("normalised", 1.0), ("raw", 0.5 / facts.slo_speed_factor)):
        if pilot and panel == "raw":
            continue
        name = f"{facts.system}-{facts.chunk_tokens}-{share:g}-{seed}{'-pilot' * pilot}"
        point = replace(facts, point=name, rate_scale=share, rate_rps=share * capacity, seed=seed)
        made = records(point, carries * factor, requests)
        client = ClientReport(len(made), len(made), 60 * S, point.rate_rps, point.rate_rps)
        if panel == "raw":
            point = replace(point, slo_speed_factor=0.5)
        found.append({**point_row(point, made, None, client, verdict), "panel": panel, **place})
    return found


def _differences(series: str, chunk: int | None, shares: Sequence[float], carries: float) -> list[dict[str, object]]:
    return [
        {
            "panel": "normalised", "class": name, "reference": REFERENCE, "series": series, "chunk_tokens": chunk,
            "rate_of_capacity": share, "seeds": 3, "attainment_reference": 0.9,
            "attainment": 0.9 - share * (1 - carries),
            "difference": share * (1 - carries), "difference_low": share * (1 - carries) - 0.06,
            "difference_high": share * (1 - carries) + 0.05,
        }
        for name in ("all", "file", "image", "search", "text")
        for share in shares
    ]  # fmt: skip
