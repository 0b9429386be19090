"""The experiment kind `search`: rates picked one after another until the max goodput is bracketed."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.assembly.reading import SettingsError, bounded, read
from harness.assembly.settings import LARGEST_FACTOR
from harness.experiments.beforehand import require_alone, require_requests, require_worlds
from harness.experiments.campaign import Campaign, point_folder
from harness.experiments.cells import Axes
from harness.experiments.compose import Job
from harness.experiments.goodput_sentences import search_sentence
from harness.experiments.kept_tries import forget_tries, keep_try, points_tried
from harness.experiments.locks import HeldElsewhereError
from harness.experiments.output import OutputSettings, tell
from harness.experiments.prepare import Prepared, Preparer
from harness.experiments.simulated_campaign import SimulatedCampaign
from harness.experiments.simulated_origin import simulation_origin
from harness.measurement.attainment import attainment
from harness.measurement.goodput_search import SearchSettings, Tried, estimate, next_rate, together
from harness.measurement.store import Point
from harness.measurement.verdict import Verdict

LEAST_TOLERANCE = 0.005
"""Rates have four digits: nearer ones would be the same."""
NO_SLO = "no request has an SLO"


@dataclass(frozen=True, slots=True, kw_only=True)
class RateSearch:
    """Rates as multiples of the trace's own; see measurement.goodput_search."""

    low: float = bounded(above=0, at_least=1 / LARGEST_FACTOR, at_most=LARGEST_FACTOR)
    high: float = bounded(above=0, at_most=LARGEST_FACTOR)
    start: float = bounded(above=0, at_most=LARGEST_FACTOR)
    step: float = bounded(default=2.0, at_least=1 + LEAST_TOLERANCE, at_most=LARGEST_FACTOR)
    tolerance: float = bounded(default=0.05, at_least=LEAST_TOLERANCE)
    budget: int = bounded(default=10, at_least=1)
    attainment: float = bounded(default=0.9, above=0, at_most=1)
    tries: int = bounded(default=2, at_least=1)
    seeds: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds must be distinct, and one at least, got {list(self.seeds)}")


async def search_rates(job: Job, axes: tuple[Axes, ...], output: OutputSettings) -> int:
    """One search per cell; points are kept like any other, and so are their tries. Raises SettingsError.

    Returns the exit status: 1 where a search can say nothing.
    """
    asked = read(RateSearch, job.config.get("search"), "search")
    try:
        settings = SearchSettings(
            asked.low, asked.high, asked.start, asked.step, asked.tolerance, asked.budget, asked.attainment, asked.tries
        )
    except ValueError as error:
        raise SettingsError(f"search: {error}") from error
    if "load.rate_scale" in job.user or any("load.rate_scale" in one for one in axes):
        raise SettingsError("load.rate_scale conflicts with a search, which picks the rates: set search.start")
    if "load.seed" in job.user or any("load.seed" in one for one in axes):
        raise SettingsError("load.seed conflicts with a search, which tries each rate with all of search.seeds")
    preparer = Preparer(tell, job.user)
    first = preparer.prepare(job.compose({**axes[0], "load.rate_scale": settings.start, "load.seed": asked.seeds[0]}))
    require_alone(job, [first])
    require_requests([first])
    if first.settings.device.simulated:
        require_worlds([first], None)
        simulated = SimulatedCampaign(output, first.settings.experiment, simulation_origin(job.overrides))
        once = dataclasses.replace(settings, tries=1)
        said = [await _search(job, one, asked.seeds, once, preparer, _Simulated(simulated)) for one in axes]
        return max(simulated.status, 0 if all(said) else 1)
    campaign = Campaign(output)
    with campaign.serving(first):
        said = [await _search(job, one, asked.seeds, settings, preparer, _Measured(campaign, output)) for one in axes]
    return max(campaign.status, 0 if all(said) else 1)


class _Measured:
    """Tries that are measured: those of earlier runs are taken as they are."""

    def __init__(self, campaign: Campaign, output: OutputSettings) -> None:
        self._campaign = campaign
        self._output = output

    @property
    def stopped(self) -> bool:
        return self._campaign.stopped

    async def tried(self, ready: Prepared, again: bool) -> list[Tried]:
        """All that is known of the point, in order of trial, measured now where nothing is.

        again: only a further measurement, the one that is there kept beside it. Raises _NothingToSayError.
        """
        folder = point_folder(Path(self._output.results), ready.settings.experiment, ready.point)
        points: list[Point] = []
        try:
            if again:
                keep_try(folder)
            elif self._output.redo:
                forget_tries(folder)
            else:
                points = points_tried(folder)
        except (HeldElsewhereError, OSError) as error:
            raise _NothingToSayError(str(error)) from error
        (point,) = await self._campaign.run([ready])
        if point is None:
            raise _NothingToSayError("the point was not measured")
        return [_tried(ready, one) for one in (*points, point)]


class _Simulated:
    """Tries that are simulated: another one would be the same."""

    def __init__(self, campaign: SimulatedCampaign) -> None:
        self._campaign = campaign

    @property
    def stopped(self) -> bool:
        return self._campaign.stopped

    async def tried(self, ready: Prepared, again: bool) -> list[Tried]:
        """As of `_Measured`."""
        assert not again, "one try at a rate"
        point = self._campaign.run([ready]).get(ready.point)
        if point is None:
            raise _NothingToSayError("the point was not simulated")
        rate, share = ready.settings.load.rate_scale, point.row["attainment"]
        if share is None:
            raise _NothingToSayError(NO_SLO)
        return [Tried(rate, share, Verdict(str(point.row["verdict"])))]


class _NothingToSayError(Exception):
    """There is no attainment, for a reason that has nothing to do with the rate."""


def _tried(ready: Prepared, point: Point) -> Tried:
    share, judged = attainment(point.counted).overall.share, point.judged()
    if judged.verdict is not Verdict.VALID:
        tell(f"{ready.point}: {judged.verdict.value} says nothing of the server: {judged.tripped[0].says}")
        return Tried(ready.settings.load.rate_scale, 0.0 if share is None else share, judged.verdict)
    if share is None:
        raise _NothingToSayError(NO_SLO)
    return Tried(ready.settings.load.rate_scale, share)


async def _search(
    job: Job,
    axes: Axes,
    seeds: Sequence[int],
    settings: SearchSettings,
    preparer: Preparer,
    tries: _Measured | _Simulated,
) -> bool:
    """Whether something can be said of the max goodput. Each rate is tried with all seeds, so that means compare."""
    by_rate: dict[float, dict[int, list[Tried]]] = {}
    tried: list[Tried] = []
    label = ""
    while not tries.stopped and (rate := next_rate(tried, settings)) is not None:
        # A rate with few digits finds its finished point again.
        rate = float(f"{rate:.4g}")
        again = rate in by_rate
        by_seed = dict(by_rate.get(rate, {}))
        try:
            for seed in seeds:
                there = by_seed.get(seed, [])
                if there and there[-1].verdict is Verdict.VALID:
                    continue
                ready = preparer.prepare(job.compose({**axes, "load.rate_scale": rate, "load.seed": seed}))
                label = f"{ready.labels['series']}, seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"
                by_seed[seed] = there + await tries.tried(ready, again)
        except _NothingToSayError as error:
            tell(f"search of {label} ends at rate_scale {rate:g}: {error}")
            break
        by_rate[rate] = by_seed
        tried = [one for known in by_rate.values() for one in together(list(known.values()))]
    if tried and not tries.stopped:
        tell(search_sentence(label, tried, settings))
    return estimate(tried, settings.target) is not None
