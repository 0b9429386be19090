"""Points on disk: a folder of raw facts per point, written whole or not at all."""

import contextlib
import csv
import gzip
import hashlib
import io
import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

from engine.core.record import ClientReport, EngineReport, RequestRecord, Status
from harness.measurement.attainment import counted
from harness.measurement.table_file import write_whole
from harness.measurement.tables import PointFacts, point_row
from harness.measurement.verdict import Judgement, judge

RECORDS = "records.csv.gz"
ENGINE_REPORT = "engine_report.json"
CLIENT_REPORT = "client_report.json"
SETTINGS = "settings.json"
PROVENANCE = "provenance.json"
MANIFEST = "manifest.json"
COUNTED_LATER = frozenset({"kv_sent", "kv_received"})
"""Counts that reports of older engines do not have, of things those could not do: 0 of each."""


class StoreError(ValueError):
    """A point folder that cannot be read or written; the message names it and what is wrong."""


class PointExistsError(StoreError):
    """Another run has written this point already."""


class PointState(StrEnum):
    """What a point folder holds."""

    ABSENT = "absent"
    DAMAGED = "damaged"  # half-written, truncated or changed: to be redone
    INTERRUPTED = "interrupted"  # whole, but the user stopped the run: to be redone
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class Point:
    """Everything kept of one run.

    settings: the resolved settings the point's hash was made of. provenance: commit, versions, wall clock.
    engine: None when the server gives no report. server_alive: whether it answered after the run.
    server_at_rest: whether nothing of the run was left in it after the last client had left; None = not known.
    """

    facts: PointFacts
    settings: Mapping[str, Any]
    provenance: Mapping[str, Any]
    records: tuple[RequestRecord, ...]
    engine: EngineReport | None
    client: ClientReport
    server_alive: bool = True
    server_at_rest: bool | None = None

    @property
    def discard_first_s(self) -> float:
        """How long the requests due at first do not count, on this device."""
        return float(self.settings.get("protocol", {}).get("discard_first_s") or 0) * self.facts.slo_speed_factor

    @property
    def counted(self) -> tuple[RequestRecord, ...]:
        """The records that attainment and times are of."""
        return counted(self.records, self.discard_first_s)

    def row(self) -> dict[str, object]:
        """As in a point table."""
        return point_row(
            self.facts, self.records, self.engine, self.client, self.judged(), discard_first_s=self.discard_first_s
        )

    def judged(self) -> Judgement:
        """The verdict on the measurement, of all that is known of it."""
        return judge(
            self.records,
            self.client,
            self.server_alive,
            engine=self.engine,
            server_at_rest=self.server_at_rest,
        )


def write_point(folder: Path, point: Point) -> None:
    """Write a point's folder whole. A damaged or interrupted one in its place is replaced.

    Raises PointExistsError when a finished point is there (a run at the same time may have won).
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".partial", dir=folder.parent))
    try:
        contents = _contents(point)
        for name, content in contents.items():
            write_whole(partial / name, content)
        manifest = {name: {"bytes": len(c), "sha256": hashlib.sha256(c).hexdigest()} for name, c in contents.items()}
        write_whole(partial / MANIFEST, _json(manifest))
        partial.chmod(0o755)
        _put_in_place(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def point_state(folder: Path) -> PointState:
    """What the folder holds, by its manifest: every file there, whole and unchanged."""
    if not folder.exists():
        return PointState.ABSENT
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        whole = set(manifest) >= {RECORDS, ENGINE_REPORT, CLIENT_REPORT, SETTINGS, PROVENANCE} and all(
            hashlib.sha256((folder / name).read_bytes()).hexdigest() == entry["sha256"]
            for name, entry in manifest.items()
        )
        if not whole:
            return PointState.DAMAGED
        interrupted = json.loads((folder / CLIENT_REPORT).read_bytes())["interrupted"]
    except (OSError, ValueError, KeyError, TypeError):
        return PointState.DAMAGED
    return PointState.INTERRUPTED if interrupted else PointState.FINISHED


def read_point(folder: Path) -> Point:
    """Read a finished or interrupted point. StoreError when it is absent or damaged."""
    state = point_state(folder)
    if state in (PointState.ABSENT, PointState.DAMAGED):
        raise StoreError(f"point folder {folder} is {state.value}")
    settings, engine, client = (json.loads((folder / n).read_bytes()) for n in (SETTINGS, ENGINE_REPORT, CLIENT_REPORT))
    try:
        return Point(
            facts=PointFacts(**settings["facts"]),
            settings=settings["settings"],
            provenance=json.loads((folder / PROVENANCE).read_bytes()),
            records=records_from_csv(gzip.decompress((folder / RECORDS).read_bytes()).decode()),
            engine=None if engine is None else engine_report(engine),
            client=ClientReport(**client),
            server_alive=settings["server_alive"],
            server_at_rest=settings.get("server_at_rest"),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(f"point folder {folder} was written in another format: {error}") from error


def engine_report(data: Mapping[str, Any]) -> EngineReport:
    """An engine report from its JSON form. ValueError when a field is missing or unknown: nothing is made up."""
    names = {field.name for field in fields(EngineReport)}
    missing, unknown = sorted(names - set(data) - COUNTED_LATER), sorted(set(data) - names)
    if missing or unknown:
        raise ValueError(f"engine report: missing {missing or 'nothing'}, unknown {unknown or 'nothing'}")
    values: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in data.items()}
    return EngineReport(**values)


def records_to_csv(records: Sequence[RequestRecord]) -> str:
    """One line per record, columns named as the fields; empty = None."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [field.name for field in fields(RequestRecord)]
    writer.writerow(names)
    for record in records:
        writer.writerow(["" if (value := getattr(record, name)) is None else str(value) for name in names])
    return text.getvalue()


def records_from_csv(text: str) -> tuple[RequestRecord, ...]:
    """Records as written by `records_to_csv`. ValueError on other columns or values."""
    reader = csv.DictReader(io.StringIO(text, newline=""))
    return tuple(RequestRecord(**{name: _field(name, value) for name, value in row.items()}) for row in reader)


_TEXT = ("request_id", "task", "reason")


def _field(name: str, value: str) -> Any:
    if name in _TEXT:
        return value
    if name == "status":
        return Status(value)
    if name == "output_estimated":
        return {"True": True, "False": False}[value]
    return int(value) if value else None


def _contents(point: Point) -> dict[str, bytes]:
    settings = {
        "facts": asdict(point.facts),
        "settings": point.settings,
        "server_alive": point.server_alive,
        "server_at_rest": point.server_at_rest,
    }
    return {
        # A fixed stamp and no file name in the header: the same records give the same bytes.
        RECORDS: gzip.compress(records_to_csv(point.records).encode(), mtime=0),
        ENGINE_REPORT: _json(None if point.engine is None else asdict(point.engine)),
        CLIENT_REPORT: _json(asdict(point.client)),
        SETTINGS: _json(settings),
        PROVENANCE: _json(point.provenance),
    }


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


def _put_in_place(partial: Path, folder: Path) -> None:
    """Rename the folder into place; a rename never replaces a folder that holds files, so that one writer wins."""
    state = point_state(folder)
    if state is PointState.FINISHED:
        raise PointExistsError(f"point {folder.name} is already finished")
    if state is not PointState.ABSENT:
        _move_aside(folder)
    try:
        partial.rename(folder)
    except OSError as error:
        if point_state(folder) is PointState.FINISHED:
            raise PointExistsError(f"point {folder.name} was finished by another run") from error
        raise


def _move_aside(folder: Path) -> None:
    """Remove a point that is to be redone, but put it back when another run finished it since it was looked at."""
    aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".replaced", dir=folder.parent))
    with contextlib.suppress(FileNotFoundError):  # another run moved it first: nothing is left to remove
        folder.rename(aside)
    if point_state(aside) is PointState.FINISHED:
        try:
            aside.rename(folder)
        except OSError:
            if point_state(folder) is not PointState.FINISHED:
                raise
            shutil.rmtree(aside, ignore_errors=True)  # a third run has finished it: one is enough
        raise PointExistsError(f"point {folder.name} was finished by another run")
    shutil.rmtree(aside, ignore_errors=True)
