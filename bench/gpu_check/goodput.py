"""Part: FlowPrefill and its rivals behind HTTP, on the embedded trace, at the same few rates."""

import asyncio
import contextlib
import dataclasses
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bench.gpu_check.report import Report
from bench.gpu_check.scale import Setting
from harness.assembly.requests import asked_rps, plan_point, read_trace, speed_factor, window_of
from harness.assembly.settings import (
    DeviceSettings,
    LoadSettings,
    ModelSettings,
    PointSettings,
    ProtocolSettings,
    SystemSettings,
)
from harness.experiments.machine import Cores
from harness.experiments.profile_step import read_profile
from harness.experiments.servers import ServerPool
from harness.loadgen.player import play
from harness.loadgen.settings import PlayerSettings, ShowProgress
from harness.measurement.attainment import attainment
from harness.measurement.goodput import RatePoint, max_goodput
from workloads.settings import WorkloadSettings
from workloads.slo import SLOSettings, Target

LOG = logging.getLogger("gpu-check")
SLOS: Final = SLOSettings(
    rule="by_task",
    tasks={
        "text": Target(0.25, 0.1),
        "image": Target(0.5, 0.1),
        "search": Target(4.0, 0.2),
        "file": Target(6.0, 0.2),
    },
)
FLOWPREFILL: Final = SystemSettings(
    name="flowprefill",
    series="FlowPrefill (operator)",
    policy="s_edf",
    batching="slo_aware",
    granularity="operator",
    preempt="pause",
    batch_deadline="earliest_live",
    predictor="polynomial",
    alpha=0.1,
    token_bound=2048,
)
DISTSERVE: Final = dataclasses.replace(
    FLOWPREFILL,
    name="distserve",
    series="DistServe (FCFS)",
    policy="fcfs",
    batching="token_limited",
    granularity="none",
    preempt="never",
    alpha=None,
)
CHUNKED: Final = dataclasses.replace(
    DISTSERVE,
    name="chunked_prefill",
    series="Chunked prefill 512 (s_edf)",
    policy="s_edf",
    batching="chunked",
    token_bound=None,
    chunk_tokens=512,
)
CHUNKED_EDF: Final = dataclasses.replace(CHUNKED, series="Chunked prefill 512 (edf)", policy="edf")
SYSTEMS: Final = (FLOWPREFILL, DISTSERVE, CHUNKED, CHUNKED_EDF)
"""As conf/system has them, which needs Hydra to be read; a test holds the two together."""
PART_S = 220.0
LEFT_FOR_THE_REST_S = 15.0
DRAIN_S = 5.0
SHORTEST_WINDOW_S = 5.0


def measure_goodput(setting: Setting, report: Report, profile: Path) -> None:
    """profile: of the model, for the predictors and for the speed factor of SLOs and arrivals."""
    found = asyncio.run(_all(setting, report, profile))
    for series, points in found.items():
        goodput, _ = max_goodput(points)
        bound = {"": "", "below_lowest": " (below the lowest rate)", "above_highest": " (above the highest rate)"}
        report.number(f"{series}: max goodput{bound[goodput.bound]}", goodput.known, "x the trace's rate")
    asked = setting.scale.systems
    report.must("systems that answered", len(found) == asked, str(asked), len(found))


async def _all(setting: Setting, report: Report, profile: Path) -> Mapping[str, list[RatePoint]]:
    pool = ServerPool(Cores(None, None), setting.scratch, LOG.info)
    found: dict[str, list[RatePoint]] = {}
    deadline_s = min(time.monotonic() + PART_S, setting.ends_at_s - LEFT_FOR_THE_REST_S)
    try:
        for system in SYSTEMS[: setting.scale.systems]:
            for rate in setting.scale.rates:
                left_s = deadline_s - time.monotonic()
                with contextlib.suppress(TimeoutError):  # what was not reached is missing in the table
                    point = await asyncio.wait_for(_point(setting, report, pool, profile, system, rate), left_s)
                    found.setdefault(system.series, []).append(point)
    finally:
        pool.close()
    return found


async def _point(
    setting: Setting, report: Report, pool: ServerPool, profile: Path, system: SystemSettings, rate: float
) -> RatePoint:
    point, factor = settings_of(setting, profile, system, rate)
    window, _ = window_of(point, read_trace(point.workload))
    requests = plan_point(point, window, factor)
    serving = await pool.get(point, profile)
    player = PlayerSettings(request_timeout_s=60.0, drain_s=DRAIN_S, progress=ShowProgress.OFF)
    result = await play(requests, serving.target, player)
    engine = await pool.report(serving)
    judged = attainment(result.records)
    share, worst = judged.overall.share or 0.0, judged.worst.share or 0.0
    report.row(
        "goodput",
        series=system.series,
        rate_scale=rate,
        rate_rps=asked_rps(requests),
        requests=len(requests),
        attainment=share,
        worst_class=worst,
        preemptions=0 if engine is None else engine.preemptions,
        sender_lag_p99_ms=result.client.sender_lag_p99_ns / 1e6,
        slo_speed_factor=factor,
    )
    report.number(f"{system.series} at {rate:g}x, {len(requests)} requests: attainment", share)
    if (failure := result.total_failure()) is not None:
        raise RuntimeError(f"{system.series}: {failure}")
    return RatePoint(0, rate, share)


def settings_of(setting: Setting, profile: Path, system: SystemSettings, rate: float) -> tuple[PointSettings, float]:
    """The point, its window cut so that the arrivals of all rates fit the time there is; and its speed factor."""
    scale = setting.scale
    model = ModelSettings(
        name=scale.model,
        checkpoint=scale.model,
        length_scale=scale.length_scale,
        kv_tokens=scale.kv_tokens,
        max_context_tokens=30_720,
        block_tokens=16,
        vocab_tokens=scale.vocab_tokens,
        dtype=scale.dtype,  # type: ignore[arg-type]
        activation_bytes=scale.activation_bytes,
    )
    point = PointSettings(
        experiment="gpu_check",
        system=system,
        model=model,
        device=DeviceSettings(name=scale.device, kind=scale.device, pin="off"),  # type: ignore[arg-type]
        workload=WorkloadSettings("sample", "sample", arrivals="poisson"),
        slo=SLOS,
        slo_scale=1.0,
        load=LoadSettings(name="open_loop", rate_scale=rate, seed=0, request_timeout_s=60.0, connect_timeout_s=10.0),
        protocol=ProtocolSettings(name="paper"),
    )
    factor = speed_factor(point, read_trace(point.workload), read_profile(profile).seconds_of())
    window_s = scale.arrivals_s / factor / sum(1 / each for each in scale.rates)
    window_s = min(120.0, max(SHORTEST_WINDOW_S, window_s))
    return dataclasses.replace(point, workload=dataclasses.replace(point.workload, window_s=window_s)), factor
