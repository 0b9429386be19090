"""The tables NAME.csv, NAME_max_goodput.csv, NAME_ratios.csv and, of measured points, NAME_fairness.csv and
NAME_not_valid.csv, rewritten from the raw points of an experiment.

The table of simulated points is packed, NAME.csv.gz: it has thousands of rows, and a person reads the others."""

from collections.abc import Callable
from pathlib import Path

from harness.experiments.bound_store import bound_key, read_bounds
from harness.experiments.fairness_table import ProfiledTimes, fairness_rows, write_fairness
from harness.experiments.kept_tries import try_of
from harness.experiments.not_valid_table import not_valid_row, write_not_valid
from harness.experiments.simulated_store import read_simulated
from harness.measurement.goodput_table import max_goodput_table, write_max_goodput
from harness.measurement.ratio_table import ratio_table, write_ratios
from harness.measurement.store import PointState, StoreError, point_state, read_point
from harness.measurement.table_file import PACKED, Row, TableError
from harness.measurement.tables import with_bound, write_points


def write_tables(results: Path, experiment: str, reference: str | None, tell: Callable[[str], None]) -> list[Path]:
    """Write the tables; returns their paths. A point that cannot be read is told and left out.

    reference: the series whose max goodput the others are held against.
    """
    folder, tables = results / "raw" / experiment, results / "tables"
    measured, fairness, not_valid = _measured(folder, tell)
    simulated = _simulated_rows(folder, tell)
    rows = measured + simulated
    if not rows:
        return []
    paths = [tables / f"{experiment}.csv{PACKED if simulated else ''}"]
    write_points(paths[0], rows)
    if fairness:
        paths.append(write_fairness(tables, experiment, fairness))
    if (listed := write_not_valid(tables, experiment, not_valid)) is not None:
        tell(f"{len(not_valid)} measurements are not VALID, and count in no max goodput")
        paths.append(listed)
    try:
        found = max_goodput_table(rows, reference)
    except TableError as error:
        tell(f"no max goodput table: {error}")
        return paths
    paths.append(tables / f"{experiment}_max_goodput.csv")
    write_max_goodput(paths[-1], found)
    ratios = ratio_table(rows)
    if ratios:
        paths.append(tables / f"{experiment}_ratios.csv")
        write_ratios(paths[-1], ratios)
    return paths


def _measured(folder: Path, tell: Callable[[str], None]) -> tuple[list[Row], list[Row], list[Row]]:
    """Rows of the point table, of the fairness table and of the list of what is not VALID."""
    rows: list[Row] = []
    fairness: list[Row] = []
    not_valid: list[Row] = []
    times = ProfiledTimes()
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        if path.name.startswith(".") or not path.is_dir():
            continue
        state = point_state(path)
        if state is not PointState.FINISHED:
            tell(f"left out of the table: {path.name} is {state.value}")
            continue
        try:
            point = read_point(path)
            earlier = try_of(path)
            if (listed := not_valid_row(point, None if earlier is None else earlier[1])) is not None:
                not_valid.append(listed)
            if earlier is not None:
                continue
            rows.append(point.row())
            fairness += fairness_rows(point, times.of(point))
        except (StoreError, TableError) as error:
            tell(f"left out of the table: {path.name}: {error}")
    return rows, fairness, not_valid


def _simulated_rows(folder: Path, tell: Callable[[str], None]) -> list[Row]:
    """Rows of simulated points, each beside its bound where one was solved."""
    rows: list[Row] = []
    try:
        points, bounds = read_simulated(folder), read_bounds(folder)
    except StoreError as error:
        tell(f"left out of the table: {error}")
        return rows
    for name, point in points.items():
        bound = bounds.get(bound_key(point.settings)) if bounds else None
        try:
            rows.append(point.row if bound is None else with_bound(point.row, bound))
        except TableError as error:
            tell(f"left out of the table: {name}: {error}")
    return rows
