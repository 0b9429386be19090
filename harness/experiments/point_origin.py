"""Walks a number back to the run it came from: a point by its id, and everything known of it."""

import difflib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.experiments.kept_tries import try_of
from harness.experiments.run_list import SUFFIX, read_run_list, run_of, runs_beside
from harness.experiments.simulated_origin import again
from harness.experiments.simulated_store import POINTS, read_runs, read_simulated
from harness.measurement.store import PROVENANCE, SETTINGS, PointState, StoreError, point_state
from harness.measurement.table_file import TableError, read_table, table_path

NEAR = 5


class UnknownPointError(ValueError):
    """No point, or several, go by that name; the message lists what is near."""


def find_point(results: Path, name: str) -> Path:
    """The folder of the point with this id or unambiguous beginning. A simulated point has a place in its experiment's
    folder only, a row of a table without raw facts in the table. Raises UnknownPointError."""
    raw = results / "raw"
    places = sorted(p for p in raw.glob("*/*") if p.is_dir() and not p.name.startswith("."))
    places += [folder.parent / point for folder in sorted(raw.glob(f"*/{POINTS}")) for point in _simulated(folder)]
    places += [table / point for table in _tables_with_runs(results) for point in _points_of_table(table)]
    exact = [place for place in places if place.name == name]
    places = [place for place in places if try_of(place) is None]
    found = exact or [place for place in places if place.name.startswith(name)]
    # The hash alone is enough, too.
    found = found or [place for place in places if place.name.rpartition("-")[2].startswith(name)]
    if len(found) == 1:
        return found[0]
    if not places:
        raise UnknownPointError(f"there are no points under {raw}")
    if found:
        some = ", ".join(f"{place.parent.name}/{place.name}" for place in found[:NEAR])
        raise UnknownPointError(
            f"{name} is the beginning of {len(found)} points: {some}{', ...' * (len(found) > NEAR)}"
        )
    names = [place.name for place in places]
    near = difflib.get_close_matches(name, names, n=NEAR, cutoff=0.3) or names[:NEAR]
    raise UnknownPointError(f"there is no point {name} under {raw}; near it: {', '.join(near)}")


def describe(folder: Path, results: Path) -> str:
    """Everything known of a point, for a person. folder: as `find_point` gives it."""
    if folder.parent.is_file():
        return _describe_row(folder.parent, folder.name)
    if not folder.is_dir():
        return _describe_simulated(folder, results)
    provenance = _json(folder / PROVENANCE)
    settings = _json(folder / SETTINGS)
    machine = provenance.get("machine", {})
    state, earlier = point_state(folder), try_of(folder) is not None
    table = f"{folder.parent.name}_not_valid" if earlier else folder.parent.name
    lines = [
        f"point      {folder.name}"
        + ("" if state is PointState.FINISHED or _is_study(folder) else f" ({state.value})")
        + " (a try of a search, measured again)" * earlier,
        f"experiment {folder.parent.name}",
        *_run_lines(provenance, "measured"),
        f"device     {provenance.get('device')}; {machine.get('cores')} cores of {machine.get('cpu')}",
        f"versions   {', '.join(f'{k} {v}' for k, v in provenance.get('versions', {}).items())}",
        f"seed       {provenance.get('seed')}",
        f"server     {' '.join(provenance.get('server_command', [])) or 'none of ours'}",
        f"records    {folder}",
        "",
        "row",
        *_row(table_path(results / "tables", table), folder.name),
        "",
        "settings",
        *_flat(settings.get("settings", {}), "  "),
    ]
    return "\n".join(lines)


def _describe_row(table: Path, point: str) -> str:
    """Of a row computed from what is committed, or measured, and kept in its table only."""
    try:
        origin = run_of(read_run_list(runs_beside(table)), point)
    except StoreError as error:
        return f"point      {point}: {error}"
    lines = [
        f"point      {point}",
        f"table      {table}",
        *_run_lines(origin, "made"),
        f"again      {origin.get('again')}",
        f"versions   {', '.join(f'{k} {v}' for k, v in origin.get('versions', {}).items())}",
        "",
        "row",
        *_row(table, point),
    ]
    return "\n".join(lines)


def _run_lines(origin: Mapping[str, Any], done: str) -> list[str]:
    code = origin.get("code", {})
    changed = {True: " with uncommitted changes", False: ""}.get(code.get("dirty"), "")
    return [
        f"commit     {code.get('commit')}{changed}",
        f"{done:<10} {origin.get('measured_at')} by: {' '.join(map(str, origin.get('command', [])))}",
    ]


def _tables_with_runs(results: Path) -> list[Path]:
    runs = sorted((results / "tables").glob(f"*{SUFFIX}"))
    return [table_path(path.parent, path.name.removesuffix(SUFFIX)) for path in runs]


def _points_of_table(table: Path) -> list[str]:
    """Ids; none of a table that cannot be read."""
    try:
        return [row["point"] for row in read_table(table) if "point" in row]
    except TableError:
        return []


def _describe_simulated(place: Path, results: Path) -> str:
    try:
        point = read_simulated(place.parent)[place.name]
        runs = read_runs(place.parent)
    except (StoreError, KeyError) as error:
        return f"point      {place.name}: {error}"
    origin = run_of(runs, place.name)
    lines = [
        f"point      {place.name}",
        f"experiment {place.parent.name}",
        *_run_lines(origin, "simulated"),
        f"again      {again(origin, place.parent.name, place.name, results)}",
        f"device     {point.row.get('device')}, simulated",
        f"versions   {', '.join(f'{k} {v}' for k, v in origin.get('versions', {}).items())}",
        f"seed       {point.row.get('seed')}",
        f"records    {place.parent / POINTS}",
        "",
        "row",
        *_row(table_path(results / "tables", place.parent.name), place.name),
        "",
        "settings",
        *_flat(point.settings, "  "),
    ]
    return "\n".join(lines)


def _simulated(store: Path) -> list[str]:
    """Ids; none of a store that is damaged."""
    try:
        return list(read_simulated(store.parent))
    except StoreError:
        return []


def _is_study(folder: Path) -> bool:
    return (folder / "measurement.json.gz").is_file()


def _row(table: Path, point: str) -> list[str]:
    try:
        rows = [row for row in read_table(table) if row.get("point") == point]
    except TableError as error:
        return [f"  {error}"]
    if not rows:
        return [f"  not in {table}"]
    return [f"  {name} = {value}" for name, value in rows[0].items() if value != ""]


def _flat(values: Mapping[str, Any], indent: str, prefix: str = "") -> list[str]:
    lines: list[str] = []
    for key, value in values.items():
        if isinstance(value, dict) and value:
            lines += _flat(value, indent, f"{prefix}{key}.")
        else:
            lines.append(f"{indent}{prefix}{key} = {value}")
    return lines


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
