"""SLO attainment: the share of due requests that met their objective."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from engine.core.clock import NS_PER_S
from engine.core.record import RequestRecord, Status
from harness.measurement.latency import ttft_from_due_ns


@dataclass(frozen=True, slots=True)
class Attainment:
    """`met` of `n` requests."""

    n: int
    met: int

    @property
    def share(self) -> float | None:
        """met / n; None of no requests."""
        return self.met / self.n if self.n else None


@dataclass(frozen=True, slots=True)
class AttainmentReport:
    """Attainment of one run.

    overall, by_class: of the requests with a TTFT SLO. by_class is keyed by the request's task, sorted.
    worst_class: the class of lowest attainment (the first by name among equals); None of no requests.
    joint: TTFT and TBT together, of the requests with an SLO that asked for more than one token.
    """

    overall: Attainment
    by_class: Mapping[str, Attainment]
    worst_class: str | None
    joint: Attainment

    @property
    def worst(self) -> Attainment:
        """Attainment of the worst class."""
        return Attainment(0, 0) if self.worst_class is None else self.by_class[self.worst_class]


def counted(records: Sequence[RequestRecord], discard_first_s: float) -> tuple[RequestRecord, ...]:
    """Those due `discard_first_s` after the first one or later: what a warm-up left out of the counts leaves.

    The others were served all the same.
    """
    if not records:
        return ()
    from_ns = min(record.due_at_ns for record in records) + round(discard_first_s * NS_PER_S)
    return tuple(record for record in records if record.due_at_ns >= from_ns)


def met_ttft(record: RequestRecord) -> bool:
    """Whether the request ended well and its first token came within its TTFT SLO, counted from its due instant.

    False without a TTFT SLO: such a request is in no denominator.
    """
    ttft_ns = ttft_from_due_ns(record)
    if record.status is not Status.OK or ttft_ns is None or record.ttft_slo_ns is None:
        return False
    return ttft_ns <= record.ttft_slo_ns


def met_joint(record: RequestRecord) -> bool:
    """Whether the request ended well and met every SLO it states: TTFT, and the largest gap between tokens."""
    if record.status is not Status.OK:
        return False
    ttft_met = record.ttft_slo_ns is None or met_ttft(record)
    tbt_met = record.tbt_slo_ns is None or record.tbt_max_ns is None or record.tbt_max_ns <= record.tbt_slo_ns
    return ttft_met and tbt_met


def attainment(records: Sequence[RequestRecord]) -> AttainmentReport:
    """Attainment over every due request with an SLO: failed, refused, late, unfinished and unsent ones are misses."""
    with_ttft = [record for record in records if record.ttft_slo_ns is not None]
    generating = [r for r in records if r.max_tokens > 1 and (r.ttft_slo_ns is not None or r.tbt_slo_ns is not None)]
    by_class = {
        name: _count([record for record in with_ttft if record.task == name], met_ttft)
        for name in sorted({record.task for record in with_ttft})
    }
    return AttainmentReport(
        overall=_count(with_ttft, met_ttft),
        by_class=MappingProxyType(by_class),
        worst_class=min(by_class, key=lambda name: by_class[name].met / by_class[name].n, default=None),
        joint=_count(generating, met_joint),
    )


def _count(records: Iterable[RequestRecord], met: Callable[[RequestRecord], bool]) -> Attainment:
    outcomes = [met(record) for record in records]
    return Attainment(n=len(outcomes), met=sum(outcomes))
