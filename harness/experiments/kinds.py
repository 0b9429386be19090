"""What one job of the command does, by the experiment's `kind`."""

import asyncio
import contextlib
import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.core.command_line import INTERRUPTED_STATUS
from harness.assembly.reading import SettingsError, bounded, read
from harness.experiments import compose
from harness.experiments.beforehand import require_alone, require_reference, require_requests, require_worlds
from harness.experiments.campaign import Campaign
from harness.experiments.cells import Axes, expand, read_cells, without_user_axes
from harness.experiments.compose import Job
from harness.experiments.goodput_search import search_rates
from harness.experiments.goodput_sentences import goodput_sentences
from harness.experiments.leftovers import results_in_use
from harness.experiments.locks import locked
from harness.experiments.output import OutputSettings, tell
from harness.experiments.prepare import Prepared, Preparer
from harness.experiments.real_servers import run_real_servers
from harness.experiments.real_servers_tables import write_server_tables
from harness.experiments.reference_check import run_reference
from harness.experiments.room import GO_ON, reason, require_writable
from harness.experiments.simulated_campaign import SimulatedCampaign
from harness.experiments.simulated_origin import simulation_origin
from harness.experiments.write_tables import write_tables

ROOT_KEYS = {"kind", "cells", "reference", "pauses", "search", "output", "experiment", *compose.NAMED_GROUPS}
ROOT_KEYS |= {"workload", "slo", "check", "bound", "servers"}


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundSettings:
    """batch_tokens: the largest batch or chunk of any system held against the clairvoyant bound, in trace tokens.

    worst_class: solve for the worst class too; of minutes of arrivals that takes hours.
    """

    batch_tokens: int = bounded(at_least=1)
    worst_class: bool = True


def run_job(job: Job) -> int:
    """One job of the command. Raises SettingsError before anything is measured."""
    unknown = sorted(set(job.config) - ROOT_KEYS)
    if unknown:
        raise SettingsError(f"unknown setting {unknown[0]}; at the root there are {', '.join(sorted(ROOT_KEYS))}")
    kind = str(job.config.get("kind"))
    if kind not in KINDS:
        raise SettingsError(f"experiment={job.config['experiment']}: kind must be one of {', '.join(KINDS)}")
    axes = expand(without_user_axes(read_cells(job.config.get("cells")), job.user))
    if job.side_by_side and kind in MEASURED:
        raise SettingsError(f"kind={kind} is measured, and must run alone: use hydra/launcher=basic")
    output = read(OutputSettings, job.config["output"], "output")
    require_writable(Path(output.results), job.config["experiment"])
    with results_in_use(Path(output.results)):
        if output.tables_only:
            return rewrite_tables(job, output)
        return KINDS[kind](job, axes, output)


def rewrite_tables(job: Job, output: OutputSettings) -> int:
    """The tables of the points that are there. Raises SettingsError where there are none."""
    experiment, kind = job.config["experiment"], str(job.config["kind"])
    if kind not in TABLES:
        raise SettingsError(
            f"output.tables_only: experiment={experiment} is of kind {kind}, which writes its own table"
        )
    raw = Path(output.results) / "raw" / experiment
    if not raw.is_dir():
        raise SettingsError(f"output.tables_only: there is no folder {raw}")
    return _tables(job, output)


def run_rate_points(job: Job, axes: tuple[Axes, ...], output: OutputSettings) -> int:
    """Points whose rates the experiment file gives."""
    points = _chosen(Preparer(tell, job.user).prepare_all(job, axes), output.only)
    require_reference(points, job.config.get("reference"), job.user, Path(output.results))
    require_alone(job, points)
    require_requests(points)
    simulated = [ready for ready in points if ready.settings.device.simulated]
    status = _simulate(job, simulated, output) if simulated else 0
    if len(simulated) < len(points) and status != INTERRUPTED_STATUS:
        status = max(status, _measure([ready for ready in points if not ready.settings.device.simulated], output))
    return max(status, _tables(job, output))


def _measure(points: Sequence[Prepared], output: OutputSettings) -> int:
    campaign = Campaign(output)

    async def measure() -> None:
        with campaign.serving(points[0]):
            await campaign.run(points)

    asyncio.run(measure())
    return campaign.status


def _simulate(job: Job, points: Sequence[Prepared], output: OutputSettings) -> int:
    asked = None if job.config.get("bound") is None else read(BoundSettings, job.config["bound"], "bound")
    require_worlds(points, None if asked is None else asked.batch_tokens)
    campaign = SimulatedCampaign(output, job.config["experiment"], simulation_origin(job.overrides))
    campaign.run(points)
    if asked is not None:
        campaign.bound(points, asked.batch_tokens, asked.worst_class)
    return campaign.status


def _chosen(points: list[Prepared], only: str | None) -> list[Prepared]:
    """Those that `output.only` asks for. Raises SettingsError."""
    chosen = [ready for ready in points if only in (None, ready.point)]
    if not chosen:
        near = difflib.get_close_matches(str(only), [ready.point for ready in points], n=3, cutoff=0.3)
        raise SettingsError(f"output.only: the experiment has no point {only}; near it: {', '.join(near) or 'none'}")
    return chosen


def run_search(job: Job, axes: tuple[Axes, ...], output: OutputSettings) -> int:
    """Points at rates a search picks, one search per cell."""
    status = asyncio.run(search_rates(job, axes, output))
    status = max(status, _tables(job, output))
    name = Path(output.results) / "tables" / job.config["experiment"]
    table, not_valid = (name.with_name(f"{name.name}_{kind}.csv") for kind in ("max_goodput", "not_valid"))
    for sentence in goodput_sentences(table, not_valid) if table.is_file() else ():
        tell(sentence)
    return status


def run_pauses(job: Job, axes: tuple[Axes, ...], output: OutputSettings) -> int:
    """Pauses asked of the engine in this process."""
    # Here, not at the top: it loads torch, which no other kind needs in this process.
    from harness.experiments import pause_points

    return pause_points.run_pauses(job, axes, output)


def _tables(job: Job, output: OutputSettings) -> int:
    """Rewrite the experiment's tables; one job at a time, so that none writes fewer points than are there."""
    results, experiment = Path(output.results), job.config["experiment"]
    raw = results / "raw" / experiment
    try:
        with locked(raw) if raw.is_dir() else contextlib.nullcontext():
            for path in TABLES[str(job.config["kind"])](results, experiment, job.config.get("reference"), tell):
                tell(f"wrote {path}")
    except OSError as error:
        tell(f"the tables could not be written: {reason(error)}; {GO_ON}")
        return 1
    return 0


TABLES = {"rate_points": write_tables, "search": write_tables, "real_servers": write_server_tables}
"""What writes the tables of a kind from its raw points."""

MEASURED = ("pauses", "real_servers")
"""Kinds whose points are always measured."""

KINDS: Mapping[str, Callable[[Job, tuple[Axes, ...], OutputSettings], int]] = {
    "rate_points": run_rate_points,
    "pauses": run_pauses,
    "search": run_search,
    "reference": run_reference,
    "real_servers": run_real_servers,
}
