"""Runs the experiment kind `pauses` and writes results/tables/NAME.csv; raw samples are kept per setting."""

import dataclasses
import gzip
import hashlib
import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.assembly.point import read_point
from harness.assembly.reading import SettingsError, read
from harness.experiments.campaign import point_folder
from harness.experiments.cells import Axes
from harness.experiments.compose import Job
from harness.experiments.fingerprint import HASH_DIGITS, fingerprint, slug
from harness.experiments.locks import machine_to_oneself
from harness.experiments.machine import share_cores
from harness.experiments.measure import recorded_settings
from harness.experiments.output import OutputSettings, tell
from harness.experiments.pause_rounds import PausesSettings, measure_pauses
from harness.experiments.prepare import Prepared, Preparer
from harness.experiments.provenance import provenance
from harness.measurement.blocking import GRANULARITY_COLUMNS, GranularityFacts, GranularityMeasurement, granularity_row
from harness.measurement.table_file import Row, write_table, write_whole

MEASUREMENT = "measurement.json.gz"
SETTINGS = "settings.json"
PROVENANCE = "provenance.json"


def run_pauses(job: Job, axes: tuple[Axes, ...], output: OutputSettings) -> int:
    """All settings of the study, measured together (their rounds interleave) unless all are there already."""
    asked = read(PausesSettings, job.config.get("pauses"), "pauses")
    configs = [job.compose(one) for one in axes]
    for point in map(read_point, configs):
        if point.system.backend != "engine" or point.device.simulated:
            other = f"device={point.device.name}" if point.device.simulated else f"system={point.system.name}"
            raise SettingsError(f"experiment={job.config['experiment']} pauses the engine itself: {other} has none")
        if (point.model.tensor_parallel or 1) > 1:
            raise SettingsError("model.tensor_parallel: the pauses of this kind of experiment are those of one rank")
    preparer = Preparer(tell, job.user)
    points = [preparer.prepare(config) for config in configs]
    results = Path(output.results)
    folders = [point_folder(results, ready.settings.experiment, study_id(ready, asked)) for ready in points]
    if output.redo or not all(_read(folder) for folder in folders):
        lengths = [row.input_tokens for row in points[0].window.rows]
        tell(f"{asked.per_setting} pauses under each of {len(points)} settings")
        with machine_to_oneself(tell, output.share_machine):
            found = measure_pauses(
                [ready.settings for ready in points], lengths, asked, share_cores(points[0].settings.device)
            )
        for ready, folder, one in zip(points, folders, found, strict=True):
            _write(folder, _facts(ready, folder.name), one, ready, asked)
    else:
        tell(f"all {len(points)} settings are measured already")
    _write_table(results, job.config["experiment"])
    return 0


def study_id(ready: Prepared, asked: PausesSettings) -> str:
    """As a point's id; the study's own settings are part of the hash."""
    content = f"{fingerprint(ready.settings, ready.given)} {dataclasses.asdict(asked)}"
    digest = hashlib.sha256(content.encode()).hexdigest()[:HASH_DIGITS]
    return f"{slug(ready.labels['series'])}-s{ready.settings.load.seed}-{digest}"


def _facts(ready: Prepared, point: str) -> GranularityFacts:
    row = ready.facts(0.0)
    return GranularityFacts(
        experiment=row.experiment,
        point=point,
        series=row.series,
        granularity=row.granularity,
        chunk_tokens=row.chunk_tokens,
        backend=row.backend,
        source=row.source,
        model=row.model,
        device=row.device,
        length_scale=row.length_scale,
        slo_speed_factor=row.slo_speed_factor,
        prompt_tokens=None,
        seed=row.seed,
    )


def _write(
    folder: Path, facts: GranularityFacts, found: GranularityMeasurement, ready: Prepared, asked: PausesSettings
) -> None:
    settings = {
        "facts": dataclasses.asdict(facts),
        "settings": recorded_settings(ready),
        "pauses": dataclasses.asdict(asked),
    }
    origin = provenance(settings["settings"], device=ready.device, seed=ready.settings.load.seed)
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".partial", dir=folder.parent))
    try:
        write_whole(partial / MEASUREMENT, gzip.compress(_json(dataclasses.asdict(found)), mtime=0))
        write_whole(partial / SETTINGS, _json(settings))
        write_whole(partial / PROVENANCE, _json(origin))
        partial.chmod(0o755)
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _read(folder: Path) -> tuple[GranularityFacts, GranularityMeasurement] | None:
    """None = not there, or not whole."""
    try:
        settings = json.loads((folder / SETTINGS).read_bytes())
        found: Mapping[str, Any] = json.loads(gzip.decompress((folder / MEASUREMENT).read_bytes()))
        values: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in found.items()}
        return GranularityFacts(**settings["facts"]), GranularityMeasurement(**values)
    except (OSError, EOFError, ValueError, KeyError, TypeError):
        return None


def _write_table(results: Path, experiment: str) -> None:
    folders: Sequence[Path] = sorted((results / "raw" / experiment).iterdir())
    kept = [_read(folder) for folder in folders if not folder.name.startswith(".")]
    rows: list[Row] = [granularity_row(*one) for one in kept if one is not None]
    path = results / "tables" / f"{experiment}.csv"
    write_table(path, rows, GRANULARITY_COLUMNS)
    tell(f"wrote {path}")


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()
