"""The command: python -m harness.experiments.workload_table [workload=NAME] [key=value ...]

Writes results/tables/workload_NAME.csv: the window of a trace that experiments replay, one row per request, with its
class and SLO, at the trace's own rate and lengths. Nothing is run. Exit status 2 for a mistake in the settings.
"""

import sys
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING

from engine.core.command_line import run_command

if TYPE_CHECKING:
    from engine.core.trace import TraceRow
    from harness.assembly.settings import PointSettings
    from harness.experiments.compose import Job

COLUMNS = ("workload", "request", "arrival_s", "task", "input_tokens", "output_tokens", "ttft_slo_s", "tbt_slo_s")
"""arrival_s: seconds after the window's first row. Lengths in trace tokens. SLOs empty where the class has none."""


def main() -> int:
    """The command's exit status."""
    from harness.experiments import compose

    return compose.main(write_workload)


def write_workload(job: "Job") -> int:
    """Write the table of one composition. Raises SettingsError."""
    from harness.assembly.point import read_point
    from harness.assembly.requests import read_trace, window_of
    from harness.measurement.table_file import write_table

    point = read_point(job.config)
    window, account = window_of(point, read_trace(point.workload))
    path = Path(str(job.config["output"]["results"])) / "tables" / f"workload_{point.workload.name}.csv"
    write_table(path, workload_rows(point, window.rows), COLUMNS)
    print(f"{account}\n{len(window.rows)} requests in {path}")
    return 0


def workload_rows(point: "PointSettings", rows: "tuple[TraceRow, ...]") -> list[OrderedDict[str, object]]:
    """Rows in order of arrival."""
    from engine.core.clock import NS_PER_S
    from workloads.slo import SLORule

    rule = SLORule(point.slo)
    found: list[OrderedDict[str, object]] = []
    for number, row in enumerate(rows):
        objective = rule.objective(row)
        seconds = [None if ns is None else ns / NS_PER_S for ns in (objective.slo.ttft_ns, objective.slo.tbt_ns)]
        values = (
            point.workload.name, number, row.arrival_s - rows[0].arrival_s, objective.task, row.input_tokens,
            row.output_tokens, *seconds,
        )  # fmt: skip
        found.append(OrderedDict(zip(COLUMNS, values, strict=True)))
    return found


if __name__ == "__main__":
    sys.exit(run_command(main))
