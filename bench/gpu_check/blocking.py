"""Part: how long pauses at random instants wait, by granularity and by launch bound, against what is expected."""

import statistics
import time
from dataclasses import dataclass

import torch

from bench.gpu_check.expected_wait import ExpectedWait, expected_wait
from bench.gpu_check.report import Report
from bench.gpu_check.scale import Setting
from bench.gpu_check.stage import BLOCK_TOKENS, prompt
from engine.core.clock import NS_PER_MS, NS_PER_S, NS_PER_US
from engine.model.granularity import Granularity, TileSettings
from engine.torch_backend.models.decoder import Decoder
from engine.torch_backend.profiling import Bench
from engine.torch_backend.settings import ExecutorSettings
from harness.experiments.pause_study import PauseStudy, uniform_instants_ns
from harness.measurement.latency import Summary, summarize

GRANULARITIES = (Granularity.LAYER, Granularity.HALF_LAYER, Granularity.OPERATOR, Granularity.TILE)
MEAN_WITHIN = 0.15
PAPER_MS = 4.5
PAPER_TOKENS = 8192
SHORT_TOKENS = 64
NO_BOUND_NS = 1 << 60
"""Ahead of everything: a whole prefill is in flight at once."""


@dataclass(frozen=True, slots=True)
class Waits:
    """measured_ms: of the pauses. prefill_s: of one that nobody pauses."""

    measured_ms: Summary
    prefill_s: float
    expected: ExpectedWait


def measure_granularities(setting: Setting, report: Report, model: Decoder) -> None:
    """Every granularity at the default launch bound."""
    scale, tokens = setting.scale, setting.scale.blocking_tokens
    bound_ms = ExecutorSettings().launch_bound_ns / NS_PER_MS if scale.device == "cuda" else 0.0
    for granularity in GRANULARITIES:
        waits = _waits(setting, model, granularity, tokens, scale.pauses, ExecutorSettings().launch_bound_ns)
        _row(report, "granularity", tokens, granularity, bound_ms * 1e3, waits)
        found, expected = waits.measured_ms, waits.expected
        assert found.mean is not None
        assert found.p99 is not None
        name = f"{granularity} at {tokens} tokens"
        shown = f"{name}: mean of {found.n} (p50 {found.p50:.3g}, max {found.max:.3g} ms) over expected"
        ratio = found.mean / (1e3 * expected.mean_s)
        report.speed(shown, ratio, "x", f"within {MEAN_WITHIN:.0%}", abs(ratio - 1) <= MEAN_WITHIN)
        parts = f"formula {1e3 * expected.formula_s:.3g} + queued ahead {1e3 * expected.queued_s:.3g}"
        report.number(f"{name}: expected mean, {parts}", 1e3 * expected.mean_s, "ms")
        limit_ms = bound_ms + 1e3 * expected.longest_s
        report.speed(f"{name}: p99", found.p99, "ms", f"<= {limit_ms:.3g} (bound + longest)", found.p99 <= limit_ms)
        if granularity is Granularity.OPERATOR and tokens <= PAPER_TOKENS:
            report.speed(f"{name}: p99", found.p99, "ms", f"<= {PAPER_MS}", found.p99 <= PAPER_MS)


def measure_bounds(setting: Setting, report: Report, model: Decoder) -> None:
    """Blocking against bubbles: each launch bound at two granularities; 0 = synchronise at each operator."""
    scale, tokens = setting.scale, setting.scale.bound_tokens
    for granularity in (Granularity.OPERATOR, Granularity.LAYER):
        found = {
            bound_us: _waits(setting, model, granularity, tokens, scale.bound_pauses, _ns(bound_us))
            for bound_us in scale.bounds_us
        }
        fastest_s = min(waits.prefill_s for waits in found.values())
        for bound_us, waits in found.items():
            _row(report, "bounds", tokens, granularity, bound_us, waits, idle_share=1 - fastest_s / waits.prefill_s)
            how = {0: "synchronise at each operator", None: "no bound"}.get(bound_us, f"bound {bound_us} us")
            idle, mean_ms = 1 - fastest_s / waits.prefill_s, waits.measured_ms.mean
            assert mean_ms is not None
            report.number(f"{granularity}, {how}: lost to gaps {idle:.2%}, mean wait", mean_ms, "ms")


def _waits(
    setting: Setting, model: Decoder, granularity: Granularity, tokens: int, pauses: int, bound_ns: int
) -> Waits:
    ids = tuple(prompt(tokens, model.shape.vocab_size))
    blocks = -(-tokens // BLOCK_TOKENS) + 1
    tile_tokens = setting.scale.tile_tokens
    tiles = TileSettings(tile_tokens, tile_tokens**2)
    settings = ExecutorSettings(granularity, tiles, blocks, BLOCK_TOKENS, launch_bound_ns=bound_ns)
    study = PauseStudy(model, settings, [ids], None)
    try:
        study.run()
        plain_ns = int(statistics.median(study.run().executed_ns for _ in range(3)))
        samples: list[int] = []
        while len(samples) < pauses:
            instants = uniform_instants_ns(setting.scale.pauses_a_pass, plain_ns, len(samples))
            samples += study.run(instants).blocking_ns
    finally:
        study.close()
    expected = _expected(Bench(model, tokens, granularity, tiles), tokens, bound_ns / NS_PER_S, model.device.type)
    return Waits(summarize([sample / NS_PER_MS for sample in samples]), plain_ns / NS_PER_S, expected)


def _expected(bench: Bench, tokens: int, bound_s: float, device: str) -> ExpectedWait:
    """From the median seconds of each operator over three runs; on a CPU nothing is launched ahead."""
    runs = [[seconds for _, seconds in bench.operators_s(tokens, 0)] for _ in range(4)][1:]
    seconds = [statistics.median(times) for times in zip(*runs, strict=True)]
    boundary = [operator.boundary for operator in bench.program(tokens, 0).operators]
    if device != "cuda":
        return expected_wait(seconds, boundary, 0.0)
    return expected_wait(seconds, boundary, bound_s, _launch_s(bench))


def _launch_s(bench: Bench) -> float:
    """The host's time to launch one operator: of a prefill too short to keep it waiting."""
    operators = bench.program(SHORT_TOKENS, 0).operators
    torch.cuda.synchronize()
    started_s = time.perf_counter()
    for operator in operators:
        operator.run()
    return (time.perf_counter() - started_s) / len(operators)


def _row(
    report: Report, table: str, tokens: int, granularity: str, bound_us: float | None, waits: Waits, **more: float
) -> None:
    found, expected = waits.measured_ms, waits.expected
    report.row(
        table,
        tokens=tokens,
        granularity=str(granularity),
        launch_bound_us=bound_us,
        pauses=found.n,
        mean_ms=found.mean,
        p50_ms=found.p50,
        p99_ms=found.p99,
        max_ms=found.max,
        expected_mean_ms=1e3 * expected.mean_s,
        formula_ms=1e3 * expected.formula_s,
        queued_ahead_ms=1e3 * expected.queued_s,
        longest_ms=1e3 * expected.longest_s,
        prefill_s=waits.prefill_s,
        tokens_per_s=tokens / waits.prefill_s,
        **more,
    )


def _ns(bound_us: int | None) -> int:
    return NO_BOUND_NS if bound_us is None else bound_us * NS_PER_US
