"""What can be known to fail is told before hours are spent: devices, schedulers, bounds, lengths, names."""

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.assembly.least_cost_of import least_cost_of
from harness.assembly.reading import SettingsError
from harness.assembly.settings import PointSettings
from harness.assembly.simulated import scheduled, scheduler_of
from harness.assembly.simulated_device import device_model, predictor_timings
from harness.assembly.simulated_memory import check_memory
from harness.experiments.compose import Job
from harness.experiments.prepare import Prepared
from harness.measurement.table_file import TableError, read_table, table_path
from workloads.length_scale import effective_tokens


def require_worlds(points: Sequence[Prepared], batch_tokens: int | None) -> None:
    """Raise SettingsError for a simulated device, a scheduler or a bound that cannot be.

    batch_tokens: largest batch or chunk the bounds hold for, in trace tokens; None = none is solved.
    """
    worlds = {repr((point.system, point.model, point.device)): point for point in (one.settings for one in points)}
    for point in worlds.values():
        check_memory(point)
        scheduler_of(point, predictor_timings(point, device_model(point)))
        if batch_tokens is not None:
            _require_bound(point, batch_tokens)


def require_requests(points: Sequence[Prepared]) -> None:
    """Raise SettingsError for prompts or outputs that no context of the model holds."""
    seen: set[str] = set()
    for ready in points:
        point = ready.settings
        drawn = None if point.workload.lengths is None else point.load.seed
        key = repr((point.workload, point.model, point.slo, drawn))
        if key not in seen:
            seen.add(key)
            scheduled(point, ready.window, ready.given.slo_speed_factor)


def require_reference(points: Sequence[Prepared], reference: object, user: Mapping[str, str], results: Path) -> None:
    """Raise SettingsError for a `reference` the user typed that is no series of these points, nor of points before.

    An experiment's own may be missing: the user may have asked for other systems alone.
    """
    if "reference" not in user or reference is None:
        return
    known = {ready.labels["series"] for ready in points}
    for experiment in {ready.settings.experiment for ready in points}:
        try:
            known |= {row.get("series", "") for row in read_table(table_path(results / "tables", experiment))}
        except TableError:
            continue
    if reference not in known:
        near = difflib.get_close_matches(str(reference), sorted(known), n=3, cutoff=0.3) or sorted(known)
        raise SettingsError(f"reference={reference}: no system has that series; near it: {'; '.join(near)}")


def require_alone(job: Job, points: Sequence[Prepared]) -> None:
    """Raise SettingsError for measured points in a sweep whose jobs run side by side: they would slow each other."""
    measured = [ready.point for ready in points if not ready.settings.device.simulated]
    if job.side_by_side and measured:
        raise SettingsError(f"point {measured[0]} is measured, and must run alone: use hydra/launcher=basic")


def _require_bound(point: PointSettings, batch_tokens: int) -> None:
    most = max(point.system.token_bound or 0, point.system.chunk_tokens or 0)
    if most > batch_tokens:
        raise SettingsError(f"bound.batch_tokens={batch_tokens} is below the {most} tokens of {point.system.series}")
    least_cost_of(point, effective_tokens(batch_tokens, point.model.length_scale))
