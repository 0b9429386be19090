"""Two result sets of the same experiment held against each other, seed by seed: is the second worse?"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.measurement.crossing import TARGET
from harness.measurement.goodput import Ratio, goodput_ratio
from harness.measurement.goodput_table import rate_points
from harness.measurement.table_file import Row, cell
from harness.measurement.uncertainty import Interval, bootstrap_mean
from harness.measurement.verdict import Verdict

SETTING_COLUMNS = (
    "experiment", "workload", "protocol", "model", "device", "source", "length_scale", "slo_scale",
    "series", "chunk_tokens",
)  # fmt: skip
"""What two points must share to be compared. `slo_speed_factor` is not among them: it is the machine's own."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much worse is still no regression.

    attainment: loss of mean attainment at one rate, as a share (0.02 = two points).
    goodput: loss of max goodput, as a share of the first set's.
    """

    attainment: float
    goodput: float

    def __post_init__(self) -> None:
        for name, value in (("attainment", self.attainment), ("goodput", self.goodput)):
            if not 0 <= value < 1:
                raise ValueError(f"the bound on {name} must be at least 0 and below 1, got {value}")


@dataclass(frozen=True, slots=True)
class AttainmentDifference:
    """Mean attainment of the second set minus the first's at one rate, over the seeds both have.

    first, second: the means. interval: of the mean difference, by resampling seeds; None of one seed.
    """

    series: str
    rate_scale: float
    seeds: int
    first: float
    second: float
    difference: float
    interval: Interval | None


@dataclass(frozen=True, slots=True)
class GoodputRatio:
    """Max goodput of the second set over the first's, over the seeds both have."""

    series: str
    ratio: Ratio


@dataclass(frozen=True, slots=True)
class Comparison:
    """All that two sets have in common.

    unpaired: points that only one of them has, or that are not VALID in both. failures: a sentence for each point that
    was VALID in the first set and whose server failed in the second.
    """

    attainment: tuple[AttainmentDifference, ...]
    goodput: tuple[GoodputRatio, ...]
    unpaired: int
    failures: tuple[str, ...] = ()

    def regressions(self, bounds: Bounds) -> tuple[str, ...]:
        """A sentence for each loss that is beyond its bound, and that chance does not explain, and for each failure.

        With an interval the whole of it must lie on the losing side; with one seed the number itself decides.
        """
        return tuple(
            [
                f"{one.series}, rate {one.rate_scale:g}: attainment {one.first:.4f} -> {one.second:.4f}"
                for one in self.attainment
                if one.difference < -bounds.attainment and (one.interval is None or one.interval.high < 0)
            ]
            + [
                f"{one.series}: max goodput fell to {'at most ' if one.ratio.bound else ''}{one.ratio.at_most:.3f} "
                "of what it was"
                for one in self.goodput
                if one.ratio.at_most < 1 - bounds.goodput
                and (one.ratio.interval is None or one.ratio.interval.high < 1)
            ]
            + list(self.failures)
        )


def compare(first: Iterable[Row], second: Iterable[Row], target: float = TARGET) -> Comparison:
    """Compare two point tables (values or text), within the settings of SETTING_COLUMNS."""
    sets = _series(first), _series(second)
    differences: list[AttainmentDifference] = []
    ratios: list[GoodputRatio] = []
    failures: list[str] = []
    every, paired = sum(len(rows) for rows in [*sets[0].values(), *sets[1].values()]), 0
    names = _shown_names([*sets[0], *sets[1]])
    for settings in sorted(sets[0].keys() & sets[1].keys()):
        old, new = (_points(one[settings], Verdict.VALID) for one in sets)
        failures += [
            f"{names[settings]}, rate {rate:g}, seed {seed}: a valid point before, the server failed now"
            for rate, seed in sorted(old.keys() & _points(sets[1][settings], Verdict.SERVER_FAILED).keys())
        ]
        both = sorted(old.keys() & new.keys())
        if not both:
            continue
        paired += 2 * len(both)
        pairs = [(old[key], new[key]) for key in both]
        differences += _differences(names[settings], pairs)
        ratio = goodput_ratio(rate_points(new for _, new in pairs), rate_points(old for old, _ in pairs), target)
        if ratio.bound != "unknown":
            ratios.append(GoodputRatio(names[settings], ratio))
    return Comparison(tuple(differences), tuple(ratios), every - paired, tuple(failures))


Text = Mapping[str, str]


def _series(rows: Iterable[Row]) -> dict[tuple[str, ...], list[Text]]:
    found: dict[tuple[str, ...], list[Text]] = {}
    for row in rows:
        text = {name: cell(value) for name, value in row.items()}
        found.setdefault(tuple(text.get(name, "") for name in SETTING_COLUMNS), []).append(text)
    return found


def _points(rows: Iterable[Text], verdict: Verdict) -> dict[tuple[float, int], Text]:
    """The points of this verdict by rate and seed."""
    return {
        (float(row["rate_scale"]), int(row["seed"])): row
        for row in rows
        if row["verdict"] == verdict and (row["attainment"] != "" or verdict is Verdict.SERVER_FAILED)
    }


def _shown_names(every: Iterable[tuple[str, ...]]) -> dict[tuple[str, ...], str]:
    """Each series named by what tells it from the others."""
    distinct = sorted(set(every))
    telling = [
        place
        for place, name in enumerate(SETTING_COLUMNS)
        if name == "series" or len({settings[place] for settings in distinct}) > 1
    ]
    return {settings: ", ".join(settings[place] for place in telling if settings[place]) for settings in distinct}


def _differences(name: str, pairs: Sequence[tuple[Text, Text]]) -> list[AttainmentDifference]:
    by_rate: dict[float, list[tuple[float, float]]] = {}
    for old, new in pairs:
        by_rate.setdefault(float(old["rate_scale"]), []).append((float(old["attainment"]), float(new["attainment"])))
    return [
        AttainmentDifference(
            series=name,
            rate_scale=rate,
            seeds=len(found),
            first=sum(old for old, _ in found) / len(found),
            second=sum(new for _, new in found) / len(found),
            difference=sum(new - old for old, new in found) / len(found),
            interval=bootstrap_mean([new - old for old, new in found]),
        )
        for rate, found in sorted(by_rate.items())
    ]
