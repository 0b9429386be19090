"""What a `real_servers` run measured and why: its servers and the place of each point, in `plan.json`."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

from harness.experiments.calibration import Calibration
from harness.experiments.prepare import Prepared
from harness.measurement.store import StoreError
from harness.measurement.table_file import write_whole

PLAN = "plan.json"


@dataclasses.dataclass(frozen=True, slots=True)
class Server:
    """A system with a chunk size. calibration: file; None = it could not be had, and `reason` says why.

    chosen: better than the other chunk size in the pilot, or the only one.
    """

    system: str
    series: str
    policy: str
    chunk_tokens: int | None
    calibration: str | None
    capacity_rps: float | None
    capacity_tokens_per_s: float | None
    slo_speed_factor: float | None
    chosen: bool
    reason: str

    @staticmethod
    def of(
        base: Prepared,
        calibration: str | None = None,
        found: Calibration | None = None,
        factor: float | None = None,
        chosen: bool = False,
        reason: str = "",
    ) -> "Server":
        """As measured, or with the reason why not."""
        system = base.settings.system
        return Server(
            system.name,
            base.labels["series"],
            system.policy,
            system.chunk_tokens,
            calibration,
            None if found is None else found.capacity_rps,
            None if found is None else found.capacity_tokens_per_s,
            factor,
            chosen,
            reason,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class PlacedPoint:
    """A point of a server and what it is in the experiment. rate_of_capacity: its rate over capacity_rps."""

    point: str
    system: str
    chunk_tokens: int | None
    pilot: bool
    rate_of_capacity: float
    capacity_rps: float


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """window_rows: rows of the trace's window, whose repetition the requests of a point are; None = not known yet."""

    servers: tuple[Server, ...] = ()
    points: tuple[PlacedPoint, ...] = ()
    window_rows: int | None = None

    def with_more(self, servers: Sequence[Server], points: Sequence[PlacedPoint], window_rows: int) -> "Plan":
        """Later facts replace those of the same server and point; a run of one system keeps those of the others."""
        by_server = {(one.system, one.chunk_tokens): one for one in (*self.servers, *servers)}
        by_point = {one.point: one for one in (*self.points, *points)}
        return Plan(tuple(by_server.values()), tuple(by_point.values()), window_rows)

    def current(self) -> tuple[PlacedPoint, ...]:
        """The points of the last calibration of their server, and but for pilots only of the chunk size chosen."""
        servers = {(one.system, one.chunk_tokens): one for one in self.servers}
        found = []
        for one in self.points:
            server = servers.get((one.system, one.chunk_tokens))
            if server is not None and server.capacity_rps == one.capacity_rps and (one.pilot or server.chosen):
                found.append(one)
        return tuple(found)


def read_plan(folder: Path) -> Plan:
    """An empty plan where there is none. Raises StoreError for one that cannot be read."""
    path = folder / PLAN
    if not path.is_file():
        return Plan()
    try:
        content = json.loads(path.read_bytes())
        servers = tuple(Server(**one) for one in content["servers"])
        points = tuple(PlacedPoint(**one) for one in content["points"])
        return Plan(servers, points, content["window_rows"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} is damaged ({error}): remove it, and a run writes it anew") from error


def write_plan(folder: Path, plan: Plan) -> None:
    """Write it whole."""
    content = json.dumps(dataclasses.asdict(plan), indent=1, sort_keys=True, allow_nan=False)
    write_whole(folder / PLAN, (content + "\n").encode())
