"""The command: python -m harness.experiments.fidelity [key=value ...]: measured points simulated, side by side.

Simulates the points of experiment=fidelity_points (finished ones are skipped), finds each among the measured ones of
goodput_vs_rate, and writes RESULTS/tables/fidelity.csv and docs/fidelity.md. Settings choose fewer points, or another
device: system=distserve load.seed=0. Exit status 2 for a mistake, or where a measured point is missing.
"""

import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.core.command_line import MISTAKE_STATUS, OneSentenceParser, run_command

if TYPE_CHECKING:
    from harness.experiments.fidelity_points import Pair

EXPERIMENT, MEASURED_EXPERIMENT = "fidelity_points", "goodput_vs_rate"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command's exit status."""
    from harness.assembly.reading import SettingsError
    from harness.measurement.store import StoreError
    from harness.measurement.table_file import TableError

    parser = OneSentenceParser(prog="python -m harness.experiments.fidelity", description=__doc__)
    parser.add_argument("settings", nargs="*", metavar="key=value", help="settings that choose points or a device")
    parser.add_argument("--measured", type=Path, default=Path("results"), help="folder of the measured results")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder to write tables and points to")
    parser.add_argument("--page", type=Path, default=Path("docs/fidelity.md"), help="page to write")
    given = parser.parse_args(arguments)
    try:
        return compare(given.settings, given.measured, given.results, given.page)
    except (SettingsError, StoreError, TableError) as error:
        print(f"fidelity: {error}", file=sys.stderr)
        return MISTAKE_STATUS


def compare(settings: Sequence[str], measured: Path, results: Path, page_path: Path) -> int:
    """Simulate, write the table, write the page. Raises SettingsError, StoreError or TableError."""
    from harness.assembly.reading import read
    from harness.experiments.cells import expand, read_cells, without_user_axes
    from harness.experiments.compose import outside_hydra
    from harness.experiments.fidelity_page import page
    from harness.experiments.fidelity_points import COLUMNS, pair
    from harness.experiments.output import OutputSettings, tell
    from harness.experiments.prepare import Preparer
    from harness.experiments.simulated_campaign import SimulatedCampaign
    from harness.experiments.simulated_origin import simulation_origin
    from harness.measurement.table_file import read_table, write_table, write_whole
    from harness.measurement.tables import write_points

    with outside_hydra() as make:
        job = make([f"experiment={EXPERIMENT}", f"output.results={results}", *settings])
        axes = expand(without_user_axes(read_cells(job.config["cells"]), job.user))
        points = Preparer(tell, job.user).prepare_all(job, axes)
    rows = read_table(measured / "tables" / f"{MEASURED_EXPERIMENT}.csv")
    pairs = [pair(ready, rows, measured / "raw" / MEASURED_EXPERIMENT) for ready in points]
    output = read(OutputSettings, job.config["output"], "output")
    campaign = SimulatedCampaign(output, EXPERIMENT, simulation_origin(job.overrides))
    simulated = campaign.run(points)
    if len(simulated) < len(points):
        return campaign.status or 1
    write_points(results / "tables" / f"{EXPERIMENT}.csv", [found.row for found in simulated.values()])
    path = results / "tables" / "fidelity.csv"
    write_table(path, _rows(pairs, {name: found.row for name, found in simulated.items()}), COLUMNS)
    write_whole(page_path, page(read_table(path)).encode())
    tell(f"wrote {path} and {page_path}")
    return 0


def _rows(pairs: "Sequence[Pair]", simulated: dict[str, Any]) -> list[dict[str, Any]]:
    from harness.experiments.fidelity_points import measured_row, simulated_row, with_measured
    from harness.experiments.simulate_point import Simulator

    real = [measured_row(found, simulated[found.ready.point]) for found in pairs]
    around_ms = [row["around_engine_ms"] for row in real if row["around_engine_ms"] is not None]
    delay_s = statistics.median(around_ms) / 1e3 if around_ms else 0.0
    rows = []
    simulator = Simulator()
    for found, row in zip(pairs, real, strict=True):
        rows += [row, simulated_row(found, simulated[found.ready.point], "simulated")]
        for world, slowdown in (("delayed", 1.0), ("as_measured", row["slowdown"])):
            again = simulator.simulate(with_measured(found.ready, slowdown, delay_s))
            measured = {"slowdown": slowdown, "around_engine_ms": 1e3 * delay_s}
            rows.append({**simulated_row(found, again.row, world), **measured})
    return rows


if __name__ == "__main__":
    sys.exit(run_command(main))
