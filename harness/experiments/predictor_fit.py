"""The command: python -m harness.experiments.predictor_fit [-m] [model=NAME] [device=NAME] [key=value ...]

Writes results/tables/predictor_fit.csv: a system's TTFT predictor, fitted as a simulation of it would be, against the
times its device then takes, over prompt lengths. Lengths it was fitted to and lengths between them are told apart.
Rows of the same model, device and predictor are replaced; predictor_fit_runs.json says which run made which rows.
Exit status 2 for a mistake in the settings.
"""

import itertools
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from engine.core.command_line import run_command

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.scheduling.predictors.polynomial import PrefillSample
    from harness.assembly.settings import PointSettings
    from harness.experiments.compose import Job
    from harness.measurement.table_file import Row

COLUMNS = (
    "point", "model", "device", "source", "predictor", "context_tokens", "new_tokens", "fitted", "true_s",
    "predicted_s", "relative_error",
)  # fmt: skip
"""Lengths in tokens as sent. fitted: the predictor was fitted to a time of this length. relative_error: predicted over
true, less 1; empty, like predicted_s, for a length the predictor has no times around."""


def main() -> int:
    """The command's exit status."""
    from harness.experiments import compose

    return compose.main(write_fit)


def write_fit(job: "Job") -> int:
    """Add the rows of one composition to the table. Raises SettingsError."""
    import shlex

    from harness.assembly.point import read_point
    from harness.assembly.reading import SettingsError
    from harness.experiments.run_list import add_table_run
    from harness.experiments.simulated_origin import simulation_origin
    from harness.measurement.store import StoreError
    from harness.measurement.table_file import TableError, merge_rows

    rows = fit_rows(read_point(job.config))
    path = Path(str(job.config["output"]["results"])) / "tables" / "predictor_fit.csv"
    origin = simulation_origin(job.overrides)
    origin["again"] = shlex.join(["python", "-m", "harness.experiments.predictor_fit", *origin["typed"]])
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # The run first: a row without it could not be walked back.
        add_table_run(path, [str(row["point"]) for row in rows], origin)
        merge_rows(path, rows, COLUMNS)
    except (OSError, StoreError, TableError) as error:
        raise SettingsError(f"{path} cannot be written: {error}") from error
    print(f"{len(rows)} lengths in {path}")
    return 0


def fit_rows(point: "PointSettings") -> "list[Row]":
    """A row per length, by context and length. Raises SettingsError for a device that is not simulated, and for a
    predictor that its timings do not suffice for."""
    from engine.core.batch import Work
    from engine.core.clock import NS_PER_S
    from engine.scheduling.predictors.sampled_curve import RangeError
    from engine.serving.catalogue import build_predictor
    from engine.serving.settings import SettingsError as EngineSettingsError
    from harness.assembly.effective import engine_settings
    from harness.assembly.reading import SettingsError
    from harness.assembly.simulated_device import device_model, predictor_timings
    from harness.assembly.simulated_timings import prefill_seconds

    device = device_model(point)
    timings = predictor_timings(point, device)
    try:
        predictor = build_predictor(engine_settings(point, profile="", engine_cpu=None), timings)
    except EngineSettingsError as error:
        raise SettingsError(f"system={point.system.name}: {error}") from error
    known = {(sample.new_tokens, sample.context_tokens) for sample in timings.prefills}
    rows: list[Row] = []
    for new, context in sorted(known | set(between(timings.prefills)), key=lambda lengths: lengths[::-1]):
        true_s = prefill_seconds(device, new, context)
        try:
            predicted_s = predictor.estimate_ns(Work(((new, context),))) / NS_PER_S
        except RangeError:
            predicted_s = None
        name = f"{point.model.name}-{point.device.name}-{point.system.predictor}-{context:05d}-{new:05d}"
        values = (
            name, point.model.name, point.device.name, "simulated", point.system.predictor, context, new,
            (new, context) in known, true_s, predicted_s, predicted_s and predicted_s / true_s - 1,
        )  # fmt: skip
        rows.append(dict(zip(COLUMNS, values, strict=True)))
    return rows


def between(samples: "Iterable[PrefillSample]") -> list[tuple[int, int]]:
    """(new, context) tokens half-way, as a ratio, between every two neighbouring lengths that were timed alone."""
    alone = sorted({sample.new_tokens for sample in samples if sample.context_tokens == 0})
    return [(round((low * high) ** 0.5), 0) for low, high in itertools.pairwise(alone)]


if __name__ == "__main__":
    sys.exit(run_command(main))
