"""The tables of `real_servers`: points in two panels, servers, unloaded TTFT, and paired differences.

The panel `raw` shows the same runs again, judged by SLOs common to all: those of the reference, our engine. That is
what a run with these SLOs would have given: a first-come server never sees an SLO, a priority server only the order of
the classes, which is the same under any factor, and the reference's are its own.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from engine.core.record import RequestRecord
from harness.experiments.calibration import read_calibration
from harness.experiments.fairness_table import Unloaded, fairness_rows, write_fairness
from harness.experiments.real_servers_plan import PlacedPoint, Plan, Server, read_plan
from harness.measurement.paired_difference import paired_difference
from harness.measurement.store import Point, PointState, StoreError, point_state, read_point
from harness.measurement.table_file import Row, write_table
from harness.measurement.tables import POINT_COLUMNS
from harness.measurement.verdict import Verdict

NORMALISED, RAW = "normalised", "raw"
PLACE_COLUMNS = ("panel", "pilot", "rate_of_capacity", "capacity_rps")
SERVER_COLUMNS = (
    "system", "series", "policy", "chunk_tokens", "capacity_rps", "capacity_tokens_per_s", "slo_speed_factor", "chosen",
    "not_run",
)  # fmt: skip
TTFT_COLUMNS = ("system", "series", "chunk_tokens", "prompt_tokens", "repeat", "ttft_s")
DIFFERENCE_COLUMNS = (
    "panel", "class", "reference", "series", "chunk_tokens", "rate_of_capacity", "seeds", "attainment_reference",
    "attainment", "difference", "difference_low", "difference_high",
)  # fmt: skip


def write_server_tables(
    results: Path, experiment: str, reference: str | None, tell: Callable[[str], None]
) -> list[Path]:
    """Write them from the raw points; returns their paths. A point that cannot be read is told and left out."""
    folder = results / "raw" / experiment
    plan = read_plan(folder)
    points = _read(folder, plan, tell)
    tables = {
        "": (_point_rows(points, _factor_of(plan, reference)), (*POINT_COLUMNS, *PLACE_COLUMNS)),
        "_servers": ([_server_row(server) for server in plan.servers], SERVER_COLUMNS),
        "_ttft": (_ttft_rows(folder, plan.servers), TTFT_COLUMNS),
        "_differences": (_difference_rows(points, reference, plan.window_rows), DIFFERENCE_COLUMNS),
    }
    paths = []
    fairness = _fairness(folder, points, plan.servers)
    if fairness:
        paths.append(write_fairness(results / "tables", experiment, fairness))
    for suffix, (rows, columns) in tables.items():
        if rows:
            paths.append(results / "tables" / f"{experiment}{suffix}.csv")
            write_table(paths[-1], rows, columns)
    return paths


def _read(folder: Path, plan: Plan, tell: Callable[[str], None]) -> list[tuple[PlacedPoint, Point]]:
    found = []
    for placed in plan.current():
        path = folder / placed.point
        state = point_state(path)
        if state is PointState.ABSENT:
            continue
        if state is not PointState.FINISHED:
            tell(f"left out of the table: {placed.point} is {state.value}")
            continue
        try:
            found.append((placed, read_point(path)))
        except StoreError as error:
            tell(f"left out of the table: {placed.point}: {error}")
    return found


def _factor_of(plan: Plan, reference: str | None) -> float | None:
    return next((one.slo_speed_factor for one in plan.servers if one.series == reference and one.chosen), None)


def _point_rows(points: Sequence[tuple[PlacedPoint, Point]], common: float | None) -> list[Row]:
    rows = []
    for placed, point in points:
        rows.append(_row(placed, point, NORMALISED))
        if common is not None and not placed.pilot:
            rows.append(_row(placed, judged_by(point, common), RAW))
    return rows


def _row(placed: PlacedPoint, point: Point, panel: str) -> Row:
    row = point.row()
    return {
        **row,
        "panel": panel,
        "pilot": placed.pilot,
        "rate_of_capacity": placed.rate_of_capacity,
        "capacity_rps": placed.capacity_rps,
    }


def judged_by(point: Point, factor: float) -> Point:
    """The same run under the SLOs of another speed factor; its rate in requests per second is what it was."""
    ratio = factor / point.facts.slo_speed_factor

    def scaled(slo_ns: int | None) -> int | None:
        return None if slo_ns is None else round(slo_ns * ratio)

    records = tuple(
        dataclasses.replace(one, ttft_slo_ns=scaled(one.ttft_slo_ns), tbt_slo_ns=scaled(one.tbt_slo_ns))
        for one in point.records
    )
    facts = dataclasses.replace(
        point.facts, slo_speed_factor=factor, rate_scale=float(f"{point.facts.rate_scale * ratio:.9g}")
    )
    return dataclasses.replace(point, records=records, facts=facts)


def _server_row(server: Server) -> Row:
    values = {name: value for name, value in dataclasses.asdict(server).items() if name in SERVER_COLUMNS}
    return {**values, "not_run": server.reason or None}


def _ttft_rows(folder: Path, servers: Sequence[Server]) -> list[Row]:
    rows: list[Row] = []
    for server in servers:
        if server.calibration is None:
            continue
        curve: Mapping[str, Sequence[float]] = json.loads((folder / server.calibration).read_bytes())["ttft_s"]
        for tokens, values in curve.items():
            rows += [
                {
                    "system": server.system,
                    "series": server.series,
                    "chunk_tokens": server.chunk_tokens,
                    "prompt_tokens": int(tokens),
                    "repeat": repeat,
                    "ttft_s": value,
                }
                for repeat, value in enumerate(values)
            ]
    return rows


def _fairness(folder: Path, points: Sequence[tuple[PlacedPoint, Point]], servers: Sequence[Server]) -> list[Row]:
    """A server's slowdowns are over its own unloaded TTFT."""
    own: dict[tuple[str, int | None], Unloaded] = {}
    for server in servers:
        found = None if server.calibration is None else read_calibration(folder / server.calibration)
        if found is not None:
            own[server.system, server.chunk_tokens] = found.seconds
    rows: list[Row] = []
    for placed, point in points:
        if not placed.pilot:
            rows += fairness_rows(point, own.get((placed.system, placed.chunk_tokens)))
    return rows


def _difference_rows(
    points: Sequence[tuple[PlacedPoint, Point]], reference: str | None, window_rows: int | None
) -> list[Row]:
    """The reference minus each other series, per rate and class; of valid points only."""
    if window_rows is None:
        return []
    runs: dict[tuple[str, int | None, float], dict[int, tuple[RequestRecord, ...]]] = {}
    for placed, point in points:
        if point.judged().verdict is Verdict.VALID and not placed.pilot:
            key = (point.facts.series, point.facts.chunk_tokens, placed.rate_of_capacity)
            runs.setdefault(key, {})[point.facts.seed] = point.records
    classes = sorted({record.task for by_seed in runs.values() for records in by_seed.values() for record in records})
    rows: list[Row] = []
    for (series, chunk, share), by_seed in sorted(runs.items(), key=repr):
        own = next((r for (name, _, rate), r in runs.items() if name == reference and rate == share), None)
        if series == reference or own is None:
            continue
        for task in (None, *classes):
            found = paired_difference(own, by_seed, window_rows, task)
            if found is None:
                continue
            rows.append(
                {
                    "panel": NORMALISED,
                    "class": "all" if task is None else task,
                    "reference": reference,
                    "series": series,
                    "chunk_tokens": chunk,
                    "rate_of_capacity": share,
                    "seeds": found.seeds,
                    "attainment_reference": found.first,
                    "attainment": found.second,
                    "difference": found.difference,
                    "difference_low": found.low,
                    "difference_high": found.high,
                }
            )
    return rows
