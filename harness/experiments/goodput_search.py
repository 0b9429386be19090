"""The experiment kind `search`: rates picked one after another until the max goodput is bracketed."""

from dataclasses import dataclass

from harness.assembly.reading import SettingsError, bounded, read
from harness.assembly.settings import LARGEST_FACTOR
from harness.experiments.beforehand import require_alone, require_requests, require_worlds
from harness.experiments.campaign import Campaign, OutputSettings, tell
from harness.experiments.cells import Axes
from harness.experiments.compose import Job
from harness.experiments.prepare import Prepared, Preparer
from harness.experiments.simulated_campaign import SimulatedCampaign
from harness.experiments.simulated_origin import simulation_origin
from harness.measurement.attainment import attainment
from harness.measurement.goodput_search import SearchSettings, Tried, estimate, next_rate
from harness.measurement.verdict import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class RateSearch:
    """Rates as multiples of the trace's own; see measurement.goodput_search."""

    low: float = bounded(above=0, at_least=1 / LARGEST_FACTOR, at_most=LARGEST_FACTOR)
    high: float = bounded(above=0, at_most=LARGEST_FACTOR)
    start: float = bounded(above=0, at_most=LARGEST_FACTOR)
    step: float = bounded(default=2.0, above=1, at_most=LARGEST_FACTOR)
    tolerance: float = bounded(default=0.05, above=0)
    budget: int = bounded(default=10, at_least=1)
    attainment: float = bounded(default=0.9, above=0, at_most=1)


async def search_rates(job: Job, axes: tuple[Axes, ...], output: OutputSettings) -> int:
    """One search per cell; points are kept like any other. Returns the exit status. Raises SettingsError."""
    asked = read(RateSearch, job.config.get("search"), "search")
    try:
        settings = SearchSettings(
            asked.low, asked.high, asked.start, asked.step, asked.tolerance, asked.budget, asked.attainment
        )
    except ValueError as error:
        raise SettingsError(f"search: {error}") from error
    if "load.rate_scale" in job.user or any("load.rate_scale" in one for one in axes):
        raise SettingsError("load.rate_scale conflicts with a search, which picks the rates: set search.start")
    preparer = Preparer(tell, job.user)
    first = preparer.prepare(job.compose({**axes[0], "load.rate_scale": settings.start}))
    tries: _Measured | _Simulated
    require_alone(job, [first])
    require_requests([first])
    if first.settings.device.simulated:
        require_worlds([first], None)
        simulated = SimulatedCampaign(output, first.settings.experiment, simulation_origin(job.overrides))
        tries = _Simulated(simulated)
        for one in axes:
            await _search(job, one, settings, preparer, tries)
        return simulated.status
    campaign = Campaign(output)
    tries = _Measured(campaign)
    with campaign.serving(first):
        for one in axes:
            await _search(job, one, settings, preparer, tries)
    return campaign.status


class _Measured:
    """Tries that are measured."""

    def __init__(self, campaign: Campaign) -> None:
        self._campaign = campaign
        self.not_valid: set[str] = set()

    @property
    def stopped(self) -> bool:
        return self._campaign.stopped

    async def attained(self, ready: Prepared) -> float | None:
        """None = there is no attainment."""
        (point,) = await self._campaign.run([ready])
        if point is None:
            return None
        if point.judged().verdict is not Verdict.VALID:
            self.not_valid.add(ready.point)
        return attainment(point.records).overall.share


class _Simulated:
    """Tries that are simulated."""

    def __init__(self, campaign: SimulatedCampaign) -> None:
        self._campaign = campaign
        self.not_valid: set[str] = set()

    @property
    def stopped(self) -> bool:
        return self._campaign.stopped

    async def attained(self, ready: Prepared) -> float | None:
        """None = there is no attainment."""
        point = self._campaign.run([ready]).get(ready.point)
        return None if point is None else point.row["attainment"]


async def _search(
    job: Job, axes: Axes, settings: SearchSettings, preparer: Preparer, tries: _Measured | _Simulated
) -> None:
    tried: list[Tried] = []
    label = ""
    before = len(tries.not_valid)
    while not tries.stopped and (rate := next_rate(tried, settings)) is not None:
        # A rate with few digits finds its finished point again.
        rate = float(f"{rate:.4g}")
        ready = preparer.prepare(job.compose({**axes, "load.rate_scale": rate}))
        label = f"{ready.labels['series']}, seed {ready.settings.load.seed}"
        share = await tries.attained(ready)
        if share is None:
            tell(f"search of {label} ends: no attainment at rate_scale {rate:g}")
            return
        tried.append(Tried(rate, share))
    if tried:
        found = estimate(tried, settings.target)
        words = {"": "is", "below_lowest": "lies below", "above_highest": "is at least"}[found.bound]
        not_valid = len(tries.not_valid) - before
        rest = f"; {not_valid} of them not VALID, which the tables leave out" if not_valid else ""
        tell(f"max goodput of {label} {words} rate_scale {found.known:.4g} ({len(tried)} rates tried{rest})")
