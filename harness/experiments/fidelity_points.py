"""Measured points beside simulations of exactly the same settings: as they are, and with what was measured of the run.

Two numbers of the real runs, neither of them fitted to attainment or blocking, can be given to the simulation: how much
longer the run's engine took for its prefill tokens than the simulation says (the engine's own counters), and the time
around the engine, from TTFTs of lone short prompts.
"""

import dataclasses
import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.core.clock import NS_PER_S
from engine.core.record import RequestRecord
from harness.assembly.reading import SettingsError, read
from harness.assembly.settings import PointSettings
from harness.assembly.simulated import scheduled, simulation_of
from harness.experiments.prepare import Prepared
from harness.experiments.profile_step import Profile, read_profile
from harness.measurement.store import Point, StoreError, read_point

Row = Mapping[str, Any]

LONE_TOKENS = 64
"""Prompts shorter than this (as sent) take a few milliseconds: what else their TTFT holds shows best."""
LONE_GAP_NS = 2_000_000
"""A request is alone when the one before it was over for this long, and the next is due after its first token."""
MEASURED_COLUMNS = (
    "attainment", "ttft_p50_s", "ttft_p99_s", "blocking_mean_ms", "blocking_p50_ms", "blocking_p99_ms", "preemptions",
    "decisions", "prefill_tokens_per_s", "executor_busy_share",
)  # fmt: skip
"""Of the point table; attainment by class comes with them."""
COLUMNS = (
    "series", "rate_scale", "seed", "world", "point", *MEASURED_COLUMNS, "slowdown", "lone_n", "around_engine_ms",
    "scheduling_share", "profile_ratio",
)  # fmt: skip
"""A row per point and world: measured, simulated, delayed (by the time around the engine), as_measured (slowed down as
well). slowdown: measured over simulated execution time of the same prefill tokens. around_engine_ms: median over
`lone_n` lone short prompts of TTFT less their prefill; of simulations, their delay. scheduling_share: of the
scheduler's rounds in the time the executor was busy. profile_ratio: whole prefills of the profile that the predictor
has over those of the one that the device has, median over lengths."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A measured point, its row, and the same point ready to be simulated."""

    measured: Point
    row: Row
    ready: Prepared


def pair(ready: Prepared, rows: Sequence[Row], raw: Path) -> Pair:
    """The measured point of the same series, rate and seed. rows: of its table; raw: the folder of its experiment.

    Raises SettingsError where there is none, or one of another setting, request, arrival or SLO.
    """
    key = (ready.labels["series"], ready.settings.load.rate_scale, ready.settings.load.seed)
    mine = [row for row in rows if (row["series"], float(row["rate_scale"]), int(row["seed"])) == key]
    if len(mine) != 1:
        raise SettingsError(f"{raw.name} has {len(mine)} measured points of {key[0]} at rate {key[1]:g}, seed {key[2]}")
    try:
        point = read_point(raw / str(mine[0]["point"]))
    except StoreError as error:
        raise SettingsError(str(error)) from error
    _require_same(ready, point)
    return Pair(point, mine[0], ready)


def measured_row(found: Pair, simulated: Row) -> dict[str, Any]:
    """simulated: row of the plain simulation; how much longer the engine took is told against it."""
    slowdown = float(simulated["prefill_tokens_per_s"]) / float(found.row["prefill_tokens_per_s"])
    around = around_engine_s(found.measured.records, found.ready, slowdown)
    engine = found.measured.engine
    return {
        **_cells(found.row, "measured", found.ready),
        "slowdown": slowdown,
        "lone_n": len(around),
        "around_engine_ms": 1e3 * statistics.median(around) if around else None,
        "profile_ratio": profile_ratio(found.ready),
        "scheduling_share": engine.scheduling_ns / engine.executed_ns if engine and engine.executed_ns else None,
    }


def simulated_row(found: Pair, simulated: Row, world: str) -> dict[str, Any]:
    """A row of the table from a row of the point table."""
    return _cells(simulated, world, found.ready)


def with_measured(ready: Prepared, slowdown: float, arrival_delay_s: float) -> Prepared:
    """The point with two measured numbers: how much slower the machine was, and the time around the engine."""
    world = dataclasses.replace(simulation_of(ready.settings), slowdown=slowdown, arrival_delay_s=arrival_delay_s)
    device = dataclasses.replace(ready.settings.device, simulation=world)
    return dataclasses.replace(ready, settings=dataclasses.replace(ready.settings, device=device))


def around_engine_s(records: Sequence[RequestRecord], ready: Prepared, slowdown: float) -> list[float]:
    """Of each lone short prompt: TTFT from its due instant, less its prefill as profiled times the run's slowdown."""
    seconds_of = _device_profile(ready).seconds_of()
    ordered = sorted(records, key=lambda record: record.due_at_ns)
    found: list[float] = []
    over_ns = -LONE_GAP_NS
    for record, after in zip(ordered, [*ordered[1:], None], strict=True):
        token_ns = record.first_token_at_ns
        if token_ns is None:
            return found
        alone = record.due_at_ns >= over_ns + LONE_GAP_NS and (after is None or after.due_at_ns >= token_ns)
        if alone and record.prompt_tokens < LONE_TOKENS:
            prefill_s = slowdown * seconds_of(record.prompt_tokens)
            found.append((token_ns - record.due_at_ns) / NS_PER_S - prefill_s)
        over_ns = max(over_ns, token_ns)
    return found


def profile_ratio(ready: Prepared) -> float:
    """Median over the lengths that both profiles have of a point on a profile."""
    assert ready.profile is not None
    first, second = (
        {(one["new_tokens"], one["context_tokens"]): one["seconds"] for one in content["prefill"]}
        for content in (ready.profile.content, _device_profile(ready).content)
    )
    ratios = [float(first[length]) / float(second[length]) for length in sorted(first.keys() & second.keys())]
    return statistics.median(ratios)


def _device_profile(ready: Prepared) -> Profile:
    path = simulation_of(ready.settings).profile
    if path is None:
        raise SettingsError(f"device={ready.settings.device.name} has no profile: its real runs are unknown")
    return read_profile(Path(path))


def _require_same(ready: Prepared, point: Point) -> None:
    """The two points differ in the device only: settings, trace, requests, instants, SLOs."""
    recorded = dict(json.loads(json.dumps(point.settings)))
    recorded.pop("effective")
    given = recorded.pop("input")
    theirs, mine = read(PointSettings, recorded, ""), ready.settings
    different = [
        field.name
        for field in dataclasses.fields(PointSettings)
        if field.name not in ("experiment", "device") and getattr(theirs, field.name) != getattr(mine, field.name)
    ]
    if (given["trace_sha256"], given["slo_speed_factor"]) != (ready.given.trace_digest, ready.given.slo_speed_factor):
        different.append("trace or SLO speed factor")
    planned = scheduled(mine, ready.window, ready.given.slo_speed_factor)
    asked = [(one.due_ns, one.prompt_tokens, one.objective.slo.ttft_ns) for one in planned]
    if not different and sorted(asked) != sorted(_requests(point.records)):
        different.append("requests")
    if different:
        raise SettingsError(f"point {point.facts.point} was measured with other settings: {', '.join(different)}")


def _requests(records: Iterable[RequestRecord]) -> list[tuple[int, int, int | None]]:
    return [(record.due_at_ns, record.prompt_tokens, record.ttft_slo_ns) for record in records]


def _cells(row: Row, world: str, ready: Prepared) -> dict[str, Any]:
    """What a row shows of a point; cells of a table are text, those of a simulation are values."""
    classes = [name for name in row if name.startswith("attainment_") and f"n_{name.partition('_')[2]}" in row]
    return {
        "series": ready.labels["series"],
        "rate_scale": ready.settings.load.rate_scale,
        "seed": ready.settings.load.seed,
        "world": world,
        "point": row["point"],
        **{name: _number(row[name]) for name in (*MEASURED_COLUMNS, *classes)},
    }


def _number(value: Any) -> float | None:
    return None if value in (None, "") else float(value)
